#include "bench/collectives/stock_gloo.h"

#include <algorithm>
#include <chrono>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/transport/tcp/device.h>

#include "bench/collectives/tensors.h"

namespace hvd::bench {
namespace {

constexpr std::chrono::seconds kTimeout{60};

}  // namespace

std::shared_ptr<gloo::Context> gloo_context(int rank, int size,
                                            std::shared_ptr<gloo::transport::Context> transport,
                                            std::shared_ptr<gloo::transport::Device> device) {
  struct Context final : gloo::Context {
    Context(int own_rank, int all) : gloo::Context(own_rank, all) {}
    void set(std::shared_ptr<gloo::transport::Device> on,
             std::shared_ptr<gloo::transport::Context> over) {
      device_ = std::move(on);
      transportContext_ = std::move(over);
    }
  };
  auto context = std::make_shared<Context>(rank, size);
  context->set(std::move(device), std::move(transport));
  context->setTimeout(kTimeout);
  return context;
}

// Gloo's rendezvous, with each rank saying everything at once.
std::shared_ptr<gloo::Context> stock_gloo(int rank, int size, const std::string& address,
                                          runtime::Exchange& exchange) {
  constexpr std::size_t kRoom = 1024;  // for an address of Gloo's and its length
  gloo::transport::tcp::attr attributes(address.c_str());
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  std::shared_ptr<gloo::transport::Context> transport = device->createContext(rank, size);
  transport->setTimeout(kTimeout);  // it has none that is defined
  std::string addresses;
  for (int peer = 0; peer < size; ++peer) {
    std::vector<char> place(kRoom);
    if (peer != rank) {
      const auto bytes = transport->createPair(peer)->address().bytes();
      std::copy(bytes.begin(), bytes.end(), place.begin() + 2);
      place[0] = static_cast<char>(bytes.size() / 256);
      place[1] = static_cast<char>(bytes.size() % 256);
    }
    addresses.append(place.data(), place.size());
  }
  const auto all = exchange.exchange(addresses, kNever);
  if (!all.ok()) give_up(all.status());
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const auto& theirs = (*all)[static_cast<std::size_t>(peer)];
    const auto* const at = theirs.data() + kRoom * static_cast<std::size_t>(rank);
    const auto length = static_cast<std::size_t>(static_cast<unsigned char>(at[0])) * 256 +
                        static_cast<unsigned char>(at[1]);
    transport->getPair(peer)->connect({at + 2, at + 2 + length});
  }
  return gloo_context(rank, size, transport, device);
}

void Flat::allreduce() {
  gloo::AllreduceOptions options(context_);
  options.setOutput(data_.data(), data_.size());
  options.setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
  gloo::allreduce(options);
}

}  // namespace hvd::bench
