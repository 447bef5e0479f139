#include "runtime/transport/tcp_mesh.h"

#include <gloo/transport/context.h>

#include "base/text.h"
#include "base/wire.h"
#include "runtime/net/keepalive.h"
#include "runtime/transport/distance.h"
#include "runtime/transport/gloo_context.h"

namespace hvd::runtime {
namespace {

MeshConnector::Options connector_options(const TcpMesh::Options& options) {
  MeshConnector::Options connector = options.connector;
  connector.sockets = options.messages.sockets;
  return connector;
}

}  // namespace

TcpMesh::TcpMesh(Options options)
    : options_(std::move(options)),
      messenger_(std::make_shared<Messenger>(options_.connector.rank, options_.connector.size,
                                             options_.messages)),
      connector_(connector_options(options_),
                 {[this](const Route& route, ProvedSocket socket) {
                    return adopt(route, std::move(socket));
                  },
                  [this](const Route& route, const Status& why) { messenger_->lose(route, why); }}),
      context_(make_gloo_context(options_.connector.rank, options_.connector.size, messenger_,
                                 options_.silence_timeout)) {}

TcpMesh::~TcpMesh() {
  connector_.close();
  messenger_->abort({Code::aborted, "the data connections were closed"});
}

Result<std::unique_ptr<TcpMesh>> TcpMesh::create(Options options) {
  std::unique_ptr<TcpMesh> mesh(new TcpMesh(std::move(options)));
  HVD_RETURN_IF_ERROR(mesh->messenger_->open(
      [&connector = mesh->connector_](const Route& route) { connector.dial(route); }));
  auto where = mesh->connector_.open();
  HVD_RETURN_IF_ERROR(where.status());
  mesh->where_ = std::move(*where);
  return mesh;
}

std::string TcpMesh::address() const {
  const auto sockets = static_cast<std::uint16_t>(options_.messages.sockets);
  const auto protection = static_cast<std::uint8_t>(options_.messages.protection);
  return WireWriter().str(where_.host).u16(where_.port).u16(sockets).u8(protection).take();
}

Status TcpMesh::connect(const std::vector<std::string>& addresses) {
  std::vector<SocketAddress> all;
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    WireReader in(addresses[rank]);
    SocketAddress where;
    where.host = in.str();
    where.port = in.u16();
    const int sockets = in.u16();
    const auto protection = in.u8();
    HVD_RETURN_IF_ERROR(in.finish(cat("the data address of rank ", rank)));
    if (sockets != options_.messages.sockets) {
      return {Code::invalid_argument,
              cat("rank ", rank, " has ", sockets, " data connections with each rank, and rank ",
                  options_.connector.rank, " has ", options_.messages.sockets,
                  ": HVD_SOCKETS_PER_PAIR must be the same for all")};
    }
    if (protection != static_cast<std::uint8_t>(options_.messages.protection)) {
      return {
          Code::invalid_argument,
          cat("rank ", rank, " and rank ", options_.connector.rank,
              " protect their data connections in different ways: HVD_DATA_SECURITY must be the "
              "same for all")};
    }
    all.push_back(std::move(where));
  }
  if (all.size() != static_cast<std::size_t>(options_.connector.size)) {
    return {Code::internal, cat("there are ", all.size(), " data addresses for ",
                                options_.connector.size, " ranks")};
  }
  connector_.set_addresses(std::move(all));
  return messenger_->failure();
}

Status TcpMesh::adopt(const Route& route, ProvedSocket socket) {
  // The kernel counts the time in which a receiver takes nothing as silence, too, so the timeout is
  // not shorter than that of a message.
  enable_keepalive(socket.fd.get(), options_.silence_timeout);
  suit_distance(socket.fd.get());
  return messenger_->adopt(route, std::move(socket));
}

void TcpMesh::abort(const Status& why) {
  aborted_ = true;
  messenger_->abort(why);
  connector_.stop();
}

}  // namespace hvd::runtime
