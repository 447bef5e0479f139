#include <unordered_set>

#include <hvd/error.h>
#include <hvd/objects.h>

#include "base/machine/machine.h"
#include "base/text.h"
#include "base/threads.h"
#include "worker/process/current_world.h"
#include "worker/process/process_world.h"
#include "worker/submissions.h"

namespace hvd {
namespace {

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

ConstTensorView view_of(std::string_view bytes) {
  return {bytes.data(), {static_cast<std::int64_t>(bytes.size())}, DataType::uint8};
}

// Room for an object, or an error on all ranks of the set, those that have some included: else they
// would wait for the bytes of one that has given up.
std::string room_on_all_ranks(std::int64_t size, const std::string& name,
                              const ProcessSet& process_set) {
  std::string object;
  std::vector<std::int32_t> without_room;
  const auto bytes = static_cast<std::uint64_t>(size);
  try {
    // All of it is touched at once, and the system promises more than it has.
    if (bytes > memory_and_swap()) throw std::bad_alloc();
    object.resize(bytes);
  } catch (const std::exception&) {  // bad_alloc, length_error
    without_room.push_back(rank());
  }
  const auto all = allgather(without_room, {cat(name, ".room"), process_set});
  if (all.elements() == 0) return object;
  throw OutOfMemoryError(cat("broadcast_object \"", name, "\": rank ",
                             all.as<std::int32_t>().front(), " has no memory for its ", size,
                             " bytes"));
}

}  // namespace

// First the size, then as many bytes: an error of the first, another root say, is one on all ranks.
std::string broadcast_object(std::string_view bytes, const BroadcastOptions& options) {
  const auto world = worker::ProcessWorld::instance().world_for_collective("broadcast_object");
  worker::CallName name(options.name, {"broadcast_object", options.process_set.id()});
  const bool is_root = world->rank() == options.root;
  std::int64_t size = is_root ? static_cast<std::int64_t>(bytes.size()) : 0;
  const auto size_told = broadcast_async(
      std::span(&size, 1), {cat(name.text(), ".size"), options.root, options.process_set});
  name.keep();
  size_told.wait();
  std::string object = room_on_all_ranks(size, name.text(), options.process_set);
  if (is_root) bytes.copy(object.data(), bytes.size());
  const TensorView elements{object.data(), {size}, DataType::uint8};
  broadcast(elements, {cat(name.text(), ".bytes"), options.root, options.process_set});
  return object;
}

std::string broadcast_object(std::span<const std::byte> bytes, const BroadcastOptions& options) {
  return broadcast_object(as_text(bytes), options);
}

std::vector<std::string> allgather_object(std::string_view bytes, const AllgatherOptions& options) {
  worker::ProcessWorld::instance().world_for_collective("allgather_object");
  worker::CallName name(options.name, {"allgather_object", options.process_set.id()});
  const auto own_size = static_cast<std::int64_t>(bytes.size());
  std::vector<adapter::Submission> works;
  works.push_back(
      worker::submission_of(Collective::allgather, std::span(&own_size, 1), {}, options));
  works.push_back(worker::submission_of(Collective::allgather, view_of(bytes), {}, options));
  works[0].name = cat(name.text(), ".size");
  works[1].name = cat(name.text(), ".bytes");
  const auto started =
      worker::start_group(std::move(works), name.text(), "allgather_object", worker::Room::made);
  name.keep();
  const auto gathered = started->take();
  const auto* next = static_cast<const char*>(gathered[1].tensor.data());
  std::vector<std::string> objects;
  for (const auto size : gathered[0].tensor.as<std::int64_t>()) {
    objects.emplace_back(next, static_cast<std::size_t>(size));
    next += size;
  }
  return objects;
}

std::vector<std::string> allgather_object(std::span<const std::byte> bytes,
                                          const AllgatherOptions& options) {
  return allgather_object(as_text(bytes), options);
}

void broadcast_parameters(std::span<const NamedTensor> tensors,
                          const BroadcastParametersOptions& options) {
  worker::ProcessWorld::instance().world_for_collective("broadcast_parameters");
  std::unordered_set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    if (name.empty()) throw InvalidArgumentError("broadcast_parameters: a tensor has no name");
    if (!names.insert(name).second) {
      throw InvalidArgumentError(
          cat("broadcast_parameters: \"", name, "\" stands twice in the list"));
    }
  }

  // Work that has been started is waited for, also after a failure: its memory is the caller's.
  std::vector<Handle> started;
  std::exception_ptr error;
  const auto note = [&error](const auto& call) {
    try {
      call();
    } catch (...) {
      if (thread_is_ending()) throw;
      if (!error) error = std::current_exception();
    }
  };

  for (const auto& [name, tensor] : tensors) {
    note([&, &name = name, &tensor = tensor] {
      started.push_back(broadcast_async(tensor, {.name = cat("broadcast_parameters.", name),
                                                 .root = options.root,
                                                 .process_set = options.process_set}));
    });
  }
  for (const auto& handle : started) note([&] { handle.wait(); });
  if (error) std::rethrow_exception(error);
}

}  // namespace hvd
