#include "worker/submissions.h"

#include "base/text.h"
#include "worker/process/current_world.h"
#include "worker/process/process_world.h"

namespace hvd::worker {

using adapter::Submission;
using detail::Pending;

std::vector<int> ranks_of_send(int to) {
  return {ProcessWorld::instance().world_for_collective("send")->rank(), to};
}

std::vector<int> ranks_of_recv(int from) {
  return {from, ProcessWorld::instance().world_for_collective("recv")->rank()};
}

std::shared_ptr<Pending> start(Submission work, std::string name, Room room) {
  work.name = std::move(name);
  std::vector<Submission> one;
  one.push_back(std::move(work));
  return Pending::start(std::move(one), room);
}

std::shared_ptr<Pending> start_group(std::vector<Submission> works, const std::string& given,
                                     std::string_view call, Room room) {
  ProcessWorld::instance().world_for_collective(call);
  if (works.empty()) return std::make_shared<Pending>(0);
  CallName name(given, {std::string(call), works.front().process_set.id()});
  for (std::size_t i = 0; i < works.size(); ++i) {
    if (works[i].name.empty()) works[i].name = cat(name.text(), "_", i + 1, "of", works.size());
  }
  auto started = Pending::start(std::move(works), room, name.text());
  name.keep();
  return started;
}

}  // namespace hvd::worker
