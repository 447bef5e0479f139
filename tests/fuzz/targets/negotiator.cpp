// What a member of a world may do to the negotiation of another rank: it sends whole messages,
// which may break every rule of the protocol. The rank refuses them or goes on; it does not crash.
//
// The first byte says whether the rank is the root, which has the children 1 and 2, or rank 1,
// whose parent is rank 0. Each step then begins with a byte: this rank's own request, or the
// message of a neighbour, with two bytes for its length.
#include "runtime/negotiation/negotiator.h"

#include "tests/fuzz/input.h"

namespace {

using namespace hvd;
using namespace hvd::runtime;
using fuzz::must_explain;

constexpr int kRanks = 3;

class Rank {
 public:
  explicit Rank(int rank)
      : rank_(rank),
        negotiator_(std::make_shared<ControlTree>(std::vector<std::string>{"a", "b", "c"}), rank,
                    Config()) {}

  // False: the world has failed.
  bool step(fuzz::Input& input) {
    const int what = input.byte();
    now_ += std::chrono::milliseconds(what);
    if (what % 4 == 0) return is_sound(submit(what / 4));
    const std::size_t low = input.byte();
    const auto payload = input.take(low | std::size_t{input.byte()} << 8);
    return is_sound(rank_ == 0 ? from_child(1 + what % 2, payload) : from_parent(payload)) &&
           work();
  }

 private:
  static bool is_sound(const Status& status) {
    if (!status.ok()) must_explain(status);
    return status.ok();
  }

  // "a" to "d", or that this rank makes no more.
  Status submit(int which) {
    if (is_closed_) return {};
    is_closed_ = which == 63;
    if (is_closed_) return negotiator_.close(now_);
    Request request;
    request.name = std::string(1, static_cast<char>('a' + which % 4));
    request.type = DataType::float32;
    request.shape = {4};
    if (!in_flight_.insert(request.name).second) return {};
    return negotiator_.submit(std::vector<Request>{request}, now_);
  }
  Status from_child(int child, std::string_view payload) {
    auto list = decode_request_list(payload, kRanks);
    return list.ok() ? negotiator_.from_child(child, std::move(*list), now_) : list.status();
  }
  Status from_parent(std::string_view payload) {
    auto list = decode_response_list(payload, kRanks, negotiator_.cache().size());
    return list.ok() ? negotiator_.from_parent(std::move(*list), now_) : list.status();
  }
  bool work() {
    const auto output = negotiator_.work(now_, 0);
    for (const auto& response : output.run) {
      for (const auto& tensor : response.tensors) in_flight_.erase(tensor->request.name);
    }
    (void)negotiator_.missing_text(now_);
    return !output.goodbye;
  }

  int rank_;
  Negotiator negotiator_;
  TimePoint now_{};
  bool is_closed_ = false;
  std::set<std::string> in_flight_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  Rank rank(input.byte() % 2);
  while (!input.at_end() && rank.step(input)) {
  }
  return 0;
}
