// The GPU of one rank in one world: the device, the communicators to the other members, what is in
// flight there, and the end of it all. Belongs to the operations of a GPU (ops/gpu_ops.h), whose
// thread, the executor's, calls everything here but abort().
//
// Nothing of it exists before the first tensor of a GPU: then the device is opened, and for each
// process set (those of it that have not joined) the members tell each other whether they can
// (capability_exchange.h) and form a communicator. If one of them cannot, that set's calls fail on
// all of them with the same words, and the world goes on.
//
// One thread, the watchdog, looks at what is in flight: at the marks behind each batch, which it
// then calls over, and at the errors that communicators come to have meanwhile. After abort(), or
// at the end in peace, it takes the communicators down (communicator_teardown.h). If even that gets
// stuck, it ends the process: the launcher starts it anew, but nothing frees a GPU that
// hangs.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/gpu/async_destroy.h"
#include "runtime/gpu/communicator_teardown.h"
#include "runtime/gpu/gpu.h"
#include "runtime/ops/layout.h"
#include "runtime/ops/operation.h"

namespace hvd::runtime::gpu {

using OpenGpu = std::function<Result<std::unique_ptr<Gpu>>(int device, int lanes)>;

struct GpuWorldOptions {
  int lanes = 1;
  std::chrono::milliseconds connect_timeout{30'000};
  std::vector<std::string> names;  // of the world's ranks: "rank 3 (h1#0)"
  std::vector<int> hosts;          // of the world's ranks: a number for each host
  bool by_hosts = false;  // allreduces go by hosts, where all members want that and it can be
  OpenGpu open;
  // As many bytes from each active member of the group to each, in their order. May throw.
  std::function<std::vector<std::string>(const Group&, const Active&, std::string own)> tell;
  // Adasum of what the active members of the group, several, have in the memory of their hosts. May
  // throw.
  std::function<void(const Group&, const Active&, DataType type, void* data,
                     const std::vector<std::size_t>& lengths)>
      adasum;
  std::function<void(const Status&)> on_broken;  // an error that no caller waits for; any thread
  CommunicatorTeardown::Limits limits;
};

// The members of a process set that have not joined, on one lane.
struct Link {
  int process_set = kGlobalSet;
  std::vector<int> ranks;
  int lane = 0;
  Status refused;  // all members know that they cannot
  bool adds_float8 = false;
  std::unique_ptr<Communicator> communicator;
  // For the ranks of the own host, and for those of the same place on all hosts, in the order of
  // the hosts; null where allreduces do not go by hosts.
  std::unique_ptr<Communicator> inside;
  std::unique_ptr<Communicator> across;
  bool by_hosts = false;
  // This rank's place among those inside.
  std::size_t local_rank = 0;
  std::size_t local_size = 1;

  using Place = std::unique_ptr<Communicator> Link::*;
  // Where one is, also while they are formed.
  std::vector<Place> places() const {
    std::vector<Place> all{&Link::communicator, &Link::inside, &Link::across};
    std::erase_if(all, [this](Place place) { return this->*place == nullptr; });
    return all;
  }
};

class GpuWorld {
 public:
  explicit GpuWorld(GpuWorldOptions options);
  ~GpuWorld() { close(); }
  GpuWorld(const GpuWorld&) = delete;
  GpuWorld& operator=(const GpuWorld&) = delete;

  int lane_of(std::uint64_t response) const {
    return static_cast<int>(response % static_cast<std::uint64_t>(options_.lanes));
  }
  // Makes it if it is not there yet, with all its members. Its `refused` is for the call; an error
  // is for the world.
  Result<std::shared_ptr<Link>> link(const Group& group, const Active& active, int lane,
                                     int device);
  // After a link() that was not refused.
  Gpu& gpu() { return *gpu_; }
  // The lane's fusion buffer; what lay in it is lost.
  Result<std::byte*> buffer(int lane, std::size_t bytes);
  // The lane's buffer in the memory of the host; what lay in it is lost.
  Result<std::byte*> host_buffer(int lane, std::size_t bytes);
  // Waits until the lane has come to its end; if the world fails meanwhile, as long as the memory
  // that it works on may have to stay.
  Status wait_for(int lane);
  std::vector<std::string> tell(const Group& group, const Active& active, std::string own) {
    return options_.tell(group, active, std::move(own));
  }
  void adasum(const Group& group, const Active& active, DataType type, void* data,
              const std::vector<std::size_t>& lengths) {
    options_.adasum(group, active, type, data, lengths);
  }
  // Calls `calls`, in which collectives of one communicator begin, all at once, and returns when
  // the device has them.
  Status together(Link& link, Link::Place place, const std::function<Status(Communicator&)>& calls);
  Status together(Link& link, const std::function<Status(Communicator&)>& calls) {
    return together(link, &Link::communicator, calls);
  }

  // Calls `over` when the work that is in the lane now is over, or at the latest when the world has
  // failed. `temporary`: memory of the lane that may go.
  Status take_off(const std::shared_ptr<Link>& link, std::span<void* const> temporary,
                  std::span<const cuda::Stream> streams, const Completion& over);

  void forget(int process_set);
  void abort();  // any thread
  // Waits for what is in flight, and ends; abort() hastens it. Nothing is called any more after it.
  void close();

 private:
  struct Flight {
    std::shared_ptr<Link> link;
    Mark mark = nullptr;
    Completion over;  // may be empty
    TimePoint since;
  };
  struct Buffer {
    void* memory = nullptr;
    std::size_t bytes = 0;
  };
  using Links = std::vector<std::shared_ptr<Link>>;

  Status open(int device);
  Status form(const std::shared_ptr<Link>& link, const Group& group, const Active& active,
              int device);
  // Forms one communicator of a link, and waits until it is there.
  Status join(const std::shared_ptr<Link>& link, Link::Place place, const Joining& joining,
              TimePoint deadline);
  Status wait_settled(const Link& link, Link::Place place, TimePoint deadline);
  void watch();
  bool look_at_flights(std::unique_lock<std::mutex>& lock);
  void look_for_errors(const Links& links);
  void leave(const Links& links);
  Status leave(Link& link, Link::Place place, TimePoint deadline);
  void retire();
  void perform(AsyncDestroy& teardown, CommunicatorTeardown::Action action);
  bool revoke_all(const std::vector<Communicator*>& communicators);
  std::vector<Communicator*> all_communicators();
  Links all_links();
  // The work that is in a lane when the world fails comes to its end within this time.
  static constexpr std::chrono::milliseconds kQuietWithin{5'000};
  static Status was_aborted() { return {Code::aborted, "the world has failed"}; }

  GpuWorldOptions options_;
  int device_ = -1;
  std::shared_ptr<Gpu> gpu_;  // set before the watchdog starts
  std::vector<Buffer> buffers_;
  std::vector<Buffer> host_buffers_;

  // Held during each call of a communicator.
  std::mutex calls_;
  std::atomic<bool> closed_ = false;  // no call may begin any more

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::tuple<int, std::vector<int>, int>, std::shared_ptr<Link>> links_;
  std::list<Flight> flights_;
  Links leaving_;
  bool abort_ = false;
  bool stop_ = false;
  std::atomic<bool> reported_ = false;

  std::thread watchdog_;
};

}  // namespace hvd::runtime::gpu
