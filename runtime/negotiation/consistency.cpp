#include "runtime/negotiation/consistency.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::runtime {
namespace {

using Variant = MessageTable::Variant;

std::string with_article(Kind kind) {
  const bool vowel = kind == Kind::allreduce || kind == Kind::allgather || kind == Kind::alltoall ||
                     kind == Kind::add_process_set;
  return cat(vowel ? "an " : "a ", kind_name(kind));
}

std::string_view compression_name(Compression compression) {
  switch (compression) {
    case Compression::none:
      return "none";
    case Compression::float16:
      return "float16";
    case Compression::bfloat16:
      return "bfloat16";
  }
  return "unknown";
}

std::string group_text(const Request& request) {
  return request.group.empty() ? std::string("no group")
                               : cat("group \"", request.group, "\" of ", request.group_size);
}

std::string ranks_text(const std::vector<int>& ranks) {
  return shape_text(std::vector<std::int64_t>(ranks.begin(), ranks.end()));
}

// The shape that the first rank of the variant requested.
std::vector<std::int64_t> shape_of(const Variant& variant) {
  auto shape = variant.request.shape;
  if (!variant.first_extents.empty()) shape.front() = variant.first_extents.begin()->second;
  return shape;
}

std::string difference(const Variant& one, const Variant& another) {
  const Request& a = one.request;
  const Request& b = another.request;
  const auto differ = [](std::string_view what, std::string_view which, const auto& mine,
                         const auto& other) {
    return cat("Mismatched ", what, ": One rank ", which, " ", mine, ", but another rank ", which,
               " ", other, ".");
  };

  if (a.kind != b.kind) {
    return differ("collective operations", "did", with_article(a.kind), with_article(b.kind));
  }
  if (a.type != b.type) {
    return differ("data types", "had type", type_name(a.type), type_name(b.type));
  }
  if (a.op != b.op) {
    return differ("reduce operations", "had operation", op_name(a.op), op_name(b.op));
  }

  if (a.prescale != b.prescale) {
    return differ("prescale factors", "had factor", a.prescale, b.prescale);
  }
  if (a.postscale != b.postscale) {
    return differ("postscale factors", "had factor", a.postscale, b.postscale);
  }

  if (a.shape != b.shape) {
    return differ(cat(kind_name(a.kind), " tensor shapes"), "sent a tensor of shape",
                  shape_text(shape_of(one)), shape_text(shape_of(another)));
  }
  if (a.root != b.root) {
    return differ("broadcast root ranks", "specified root rank", a.root, b.root);
  }
  if (a.on_host != b.on_host) {
    return differ(cat(kind_name(a.kind), " CPU/GPU device selection"), "specified device",
                  a.on_host ? "CPU" : "GPU", b.on_host ? "CPU" : "GPU");
  }

  if (a.compression != b.compression) {
    return differ("compressions", "specified compression", compression_name(a.compression),
                  compression_name(b.compression));
  }
  if (a.tree != b.tree) {
    return differ("trees of additions", "had tree", a.tree, b.tree);
  }
  if (a.group != b.group || a.group_size != b.group_size) {
    return differ("groups", "had the tensor in", group_text(a), group_text(b));
  }
  if (a.process_set != b.process_set) {
    return differ("process sets", "specified process set", a.process_set, b.process_set);
  }
  return differ("process sets", "specified ranks", ranks_text(a.ranks), ranks_text(b.ranks));
}

}  // namespace

CheckedRow check_consistency(MessageTable::Row row, const ResponseTensor* cached,
                             const RankSet& members, const ControlTree& tree) {
  if (row.id && cached != nullptr && !row.by_id.empty()) {
    Variant known{cached->request, row.by_id, {}};
    if (is_ragged(cached->request)) {
      std::size_t position = 0;
      members.for_each([&](RankSet::Value rank) {
        if (row.by_id.contains(rank)) {
          known.first_extents.emplace(static_cast<int>(rank), cached->first_extents[position]);
        }
        ++position;
      });
    }
    const auto same = std::find_if(row.whole.begin(), row.whole.end(),
                                   [&](const Variant& v) { return v.request == known.request; });
    if (same == row.whole.end()) {
      row.whole.push_back(std::move(known));
    } else {
      same->ranks.unite(known.ranks);
      same->first_extents.merge(known.first_extents);
    }
  }

  std::sort(row.whole.begin(), row.whole.end(),
            [](const Variant& a, const Variant& b) { return a.ranks.front() < b.ranks.front(); });
  CheckedRow agreement;
  const Variant& first = row.whole.front();
  auto tensor = std::make_shared<ResponseTensor>(ResponseTensor{first.request, {}});
  agreement.tensor = tensor;
  agreement.joined = members.difference(row.asked).ranks();

  if (row.whole.size() > 1) {
    const Variant& other = row.whole[1];
    agreement.error = {Code::invalid_argument,
                       cat(difference(first, other), " (tensor \"", first.request.name,
                           "\": ", tree.describe(static_cast<int>(first.ranks.front())), " and ",
                           tree.describe(static_cast<int>(other.ranks.front())), ")")};
    return agreement;
  }

  if (is_ragged(first.request)) {
    members.for_each([&](RankSet::Value rank) {
      const auto extent = first.first_extents.find(static_cast<int>(rank));
      tensor->first_extents.push_back(extent == first.first_extents.end() ? 0 : extent->second);
    });
  }

  if (first.request.kind == Kind::send_recv && !agreement.joined.empty()) {
    agreement.error = {
        Code::invalid_argument,
        cat("send_recv \"", first.request.name, "\": ", tree.describe(agreement.joined.front()),
            " has joined, and neither sends nor receives any more")};
    return agreement;
  }

  if (first.request.tree != 0 && !agreement.joined.empty()) {
    agreement.error = {
        Code::invalid_argument,
        cat("allreduce \"", first.request.name, "\": ", tree.describe(agreement.joined.front()),
            " has joined, and what it has of the sum is missing")};
    return agreement;
  }

  const auto root = static_cast<RankSet::Value>(first.request.root);
  if (first.request.kind == Kind::broadcast && !row.asked.contains(root)) {
    agreement.error = {
        Code::invalid_argument,
        cat("broadcast \"", first.request.name, "\": the root, ", tree.describe(first.request.root),
            ", has joined, and has nothing to send")};
  }
  return agreement;
}

}  // namespace hvd::runtime
