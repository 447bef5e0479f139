// Only the Welcome is not made of its fields alone: it holds a key, which needs OpenSSL. The
// agent hands a Welcome on as bytes and needs neither.
#include "base/protocol/worker_link.h"

#include "base/versions.h"
#include "base/wire.h"

namespace hvd::worker_link {

std::string Welcome::encode() const {
  return encode_frame(static_cast<std::uint16_t>(kKind), WireWriter()
                                                             .u32(wire_versions().worker_link)
                                                             .str(build_id())
                                                             .str(job_id)
                                                             .str(credential.bytes())
                                                             .str(worker)
                                                             .u64(incarnation)
                                                             .str(rendezvous_host)
                                                             .u16(rendezvous_port)
                                                             .str(advertise_address)
                                                             .boolean(world_follows)
                                                             .boolean(elastic)
                                                             .boolean(bound)
                                                             .bytes());
}

Result<WelcomeHead> WelcomeHead::decode(std::string_view payload) {
  WireReader r(payload);
  WelcomeHead head{r.u32(), r.str()};
  if (r.failed()) return Status(Code::data_loss, "welcome: it is too short");
  return head;
}

Result<Welcome> Welcome::decode(std::string_view payload) {
  const auto head = WelcomeHead::decode(payload);
  HVD_RETURN_IF_ERROR(head.status());
  if (head->version != wire_versions().worker_link) {
    return Status(Code::failed_precondition, "welcome: it is of another version");
  }

  WireReader r(payload);
  (void)r.u32();
  (void)r.view();
  std::string job_id = r.str();
  auto credential = Token::from_bytes(r.view());
  HVD_RETURN_IF_ERROR(credential.status().with_context("welcome"));
  Welcome m(std::move(job_id), *credential);
  m.worker = r.str();
  m.incarnation = r.u64();
  m.rendezvous_host = r.str();
  m.rendezvous_port = r.u16();
  m.advertise_address = r.str();
  m.world_follows = r.boolean();
  m.elastic = r.boolean();
  m.bound = r.boolean();
  HVD_RETURN_IF_ERROR(r.finish("welcome"));
  return m;
}

}  // namespace hvd::worker_link
