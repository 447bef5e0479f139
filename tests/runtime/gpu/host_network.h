// The network of the communicators of simulated GPUs, which find each other by ids, as those of the
// library do. In a round of one communicator each member brings bytes, and gets those of all.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace hvd::test {

inline constexpr std::size_t kIdSize = 128;  // that of the library

class Room {
 public:
  virtual ~Room() = default;
  // By rank. False if this one had to leave before all were there. That others have left does not
  // help: a kernel of the library, too, waits until its own rank ends it.
  virtual bool meet(std::string mine, std::vector<std::string>& all) = 0;
  // From another thread: this one meets nobody here any more.
  virtual void leave() = 0;
};

class Network {
 public:
  virtual ~Network() = default;
  virtual std::string new_id() = 0;  // rank 0 asks for it
  virtual std::shared_ptr<Room> enter(const std::string& id, int rank, int size) = 0;

  // Of all ranks in this process.
  std::atomic<int> living = 0;  // communicators
  std::atomic<int> revoked = 0;
  std::atomic<int> aborted = 0;
  std::atomic<int> finalized = 0;
  std::atomic<int> scattered = 0;  // reducescatters asked for
};

// Of one test, and all its ranks, which are threads.
class Fabric final : public Network {
 public:
  std::string new_id() override;
  std::shared_ptr<Room> enter(const std::string& id, int rank, int size) override;

 private:
  class Table;
  class Seat;
  std::mutex mutex_;
  int ids_ = 0;
  std::map<std::string, std::shared_ptr<Table>> tables_;
};

// Of processes on one host: the maker of the id sits in the middle, and passes on what all have
// brought.
class SocketNetwork final : public Network {
 public:
  ~SocketNetwork() override;
  std::string new_id() override;
  std::shared_ptr<Room> enter(const std::string& id, int rank, int size) override;

 private:
  std::mutex mutex_;
  int ids_ = 0;
  std::map<std::string, int> listeners_;  // of ids that nobody has entered yet
};

}  // namespace hvd::test
