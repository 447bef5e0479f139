// Helper functions for tests of the negotiation.
#pragma once

#include <string>
#include <vector>

#include "base/text.h"
#include "runtime/core/request.h"
#include "runtime/negotiation/coordinator.h"

namespace hvd::test {

inline runtime::Request tensor(const std::string& name, std::int64_t elements = 4) {
  runtime::Request request;
  request.name = name;
  request.type = DataType::float32;
  request.shape = {elements};
  return request;
}

inline runtime::Request of_kind(runtime::Kind kind, const std::string& name,
                                std::vector<std::int64_t> shape = {4}) {
  runtime::Request request = tensor(name);
  request.kind = kind;
  request.shape = std::move(shape);
  return request;
}

inline runtime::Request send_recv(const std::string& name, int sender, int receiver) {
  auto request = of_kind(runtime::Kind::send_recv, name);
  request.ranks = {sender, receiver};
  return request;
}

inline runtime::Request in_group(runtime::Request request, const std::string& group, int size) {
  request.group = group;
  request.group_size = size;
  return request;
}

inline runtime::Request in_set(runtime::Request request, int process_set) {
  request.process_set = process_set;
  return request;
}

inline runtime::Request add_set(const std::string& name, std::vector<int> ranks) {
  runtime::Request request = of_kind(runtime::Kind::add_process_set, name, {0});
  request.ranks = std::move(ranks);
  return request;
}

inline runtime::Request by_members(runtime::Request request) {
  request.by_members = true;
  return request;
}

inline runtime::Request remove_set(const std::string& name, int process_set) {
  return in_set(of_kind(runtime::Kind::remove_process_set, name, {0}), process_set);
}

// "host0" has the first `per_host` ranks, and so on.
inline std::vector<std::string> hosts(int size, int per_host = 1) {
  std::vector<std::string> names;
  names.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) names.push_back(cat("host", rank / per_host));
  return names;
}

inline runtime::RankSet ranks(const std::vector<int>& all) {
  return runtime::RankSet::of_ranks(all);
}

// The request as one rank sends it.
inline runtime::FullRequest asked(int rank, runtime::Request request) {
  runtime::FullRequest asked{ranks({rank}), std::move(request), {}};
  if (runtime::is_ragged(asked.request)) {
    asked.first_extents.push_back(asked.request.shape.front());
    asked.request.shape.front() = 0;
  }
  return asked;
}

inline std::vector<std::string> names_of(const runtime::Response& response) {
  std::vector<std::string> names;
  names.reserve(response.tensors.size());
  for (const auto& tensor : response.tensors) names.push_back(tensor->request.name);
  return names;
}

}  // namespace hvd::test
