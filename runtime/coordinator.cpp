#include "runtime/coordinator.h"

#include "base/text.h"

namespace hvd::runtime {
namespace {

std::string with_article(Kind kind) {
  return cat(kind == Kind::allreduce ? "an " : "a ", kind_name(kind));
}

}  // namespace

Coordinator::Coordinator(std::vector<std::string> hosts, std::size_t fusion_threshold,
                         Duration cycle_time)
    : hosts_(std::move(hosts)),
      fusion_threshold_(fusion_threshold),
      cycle_time_(cycle_time),
      left_(hosts_.size(), false) {}

std::string Coordinator::who(int rank) const {
  return cat("rank ", rank, " on host ", hosts_[static_cast<std::size_t>(rank)]);
}

Status Coordinator::submit(int rank, std::vector<Request> requests, TimePoint now) {
  for (auto& request : requests) {
    HVD_RETURN_IF_ERROR(check_request(request, size()).with_context(who(rank)));
    if (has_left(rank)) {
      return {Code::failed_precondition,
              cat(who(rank), " asked for \"", request.name, "\" after it had left")};
    }
    auto& row = table_[request.name];
    row.by_rank.resize(hosts_.size());
    auto& cell = row.by_rank[static_cast<std::size_t>(rank)];
    if (cell) {
      return {Code::already_exists, cat(who(rank), " asked for \"", request.name, "\" twice")};
    }
    const auto key = request.name;
    cell = std::move(request);
    ++row.count;
    if (row.count == size()) {
      auto node = table_.extract(key);
      complete(std::move(node.mapped()), now);
    } else if (left_count_ > 0) {
      for (int other = 0; other < size(); ++other) {
        if (!has_left(other) || row.by_rank[static_cast<std::size_t>(other)]) continue;
        auto node = table_.extract(key);
        fail_for_left(std::move(node.mapped()), other, now);
        break;
      }
    }
  }
  return {};
}

void Coordinator::leave(int rank, TimePoint now) {
  if (has_left(rank)) return;
  left_[static_cast<std::size_t>(rank)] = true;
  ++left_count_;
  std::vector<std::string> stranded;
  for (const auto& [name, row] : table_) {
    if (!row.by_rank[static_cast<std::size_t>(rank)]) stranded.push_back(name);
  }
  for (const auto& name : stranded) {
    auto node = table_.extract(name);
    fail_for_left(std::move(node.mapped()), rank, now);
  }
}

void Coordinator::fail_for_left(Row row, int rank, TimePoint now) {
  for (auto& cell : row.by_rank) {
    if (!cell) continue;
    Status error(Code::failed_precondition,
                 cat(kind_name(cell->kind), " \"", cell->name, "\" can never be: ", who(rank),
                     " has called shutdown(). All ranks must make the same calls."));
    ready_.push_back({std::move(*cell), std::move(error), now});
    return;
  }
}

// The first thing, in this order, about which two ranks differ.
Status Coordinator::disagreement(const Row& row) const {
  const Request& first = *row.by_rank.front();
  for (int rank = 1; rank < size(); ++rank) {
    const Request& other = *row.by_rank[static_cast<std::size_t>(rank)];
    const auto differ = [&](const auto&... what) {
      return Status(Code::invalid_argument, cat(what..., " (tensor \"", first.name, "\": ", who(0),
                                                " and ", who(rank), ")"));
    };
    if (first.kind != other.kind) {
      return differ("Mismatched collective operations: One rank did ", with_article(first.kind),
                    ", but another rank did ", with_article(other.kind), ".");
    }
    if (first.type != other.type) {
      return differ("Mismatched data types: One rank had type ", type_name(first.type),
                    ", but another rank had type ", type_name(other.type), ".");
    }
    if (first.op != other.op) {
      return differ("Mismatched reduce operations: One rank had operation ", op_name(first.op),
                    ", but another rank had operation ", op_name(other.op), ".");
    }
    if (first.prescale != other.prescale) {
      return differ("Mismatched prescale factors: One rank had factor ", first.prescale,
                    ", but another rank had factor ", other.prescale, ".");
    }
    if (first.postscale != other.postscale) {
      return differ("Mismatched postscale factors: One rank had factor ", first.postscale,
                    ", but another rank had factor ", other.postscale, ".");
    }
    if (first.shape != other.shape) {
      return differ("Mismatched ", kind_name(first.kind),
                    " tensor shapes: One rank sent a tensor of shape ", shape_text(first.shape),
                    ", but another rank sent a tensor of shape ", shape_text(other.shape), ".");
    }
    if (first.root != other.root) {
      return differ("Mismatched broadcast root ranks: One rank specified root rank ", first.root,
                    ", but another rank specified root rank ", other.root, ".");
    }
  }
  return {};
}

void Coordinator::complete(Row row, TimePoint now) {
  Status error = disagreement(row);
  ready_.push_back({std::move(*row.by_rank.front()), std::move(error), now});
}

std::vector<Response> Coordinator::poll(TimePoint now, int under_way) {
  std::vector<Response> responses;
  while (!ready_.empty()) {
    const bool waited = now - ready_.front().since >= cycle_time_;
    if (under_way >= (waited ? kMaxAhead : kEnoughAhead)) break;
    const auto batch = take_batch(ready_, fusion_threshold_);
    Response response;
    response.kind = batch.front().request.kind;
    response.error = batch.front().error;
    response.process_set = batch.front().request.process_set;
    for (const auto& tensor : batch) response.tensors.push_back({tensor.request, {}});
    // An error costs the executor nothing, so it never holds back what comes after it.
    if (response.error.ok()) ++under_way;
    responses.push_back(std::move(response));
  }
  return responses;
}

TimePoint Coordinator::next_poll(int under_way) const {
  if (ready_.empty() || under_way >= kMaxAhead) return kNever;
  return ready_.front().since + cycle_time_;
}

}  // namespace hvd::runtime
