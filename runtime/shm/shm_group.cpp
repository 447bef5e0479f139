#include "runtime/shm/shm_group.h"

#include <algorithm>
#include <sched.h>
#include <utility>

#include "base/log.h"
#include "base/machine/proc.h"
#include "base/text.h"
#include "runtime/core/affinity.h"
#include "runtime/core/silence.h"
#include "runtime/core/threads.h"

namespace hvd::runtime {
namespace {

// A step is the number of the operation above those of its sync()s.
constexpr unsigned kSyncBits = 24;

// A collective that has more is measured from there on.
constexpr std::uint64_t kManySyncs = 8;
// Collectives of one step that may follow each other in large chunks. In small ones they could have
// more steps, which would be measured.
constexpr std::size_t kMostSingleSteps = 64;

Status ended() { return {Code::aborted, "shared memory: the world has ended"}; }

}  // namespace

ShmGroup::ShmGroup(ShmLayout memory, std::vector<int> ranks, int rank, const Options& options,
                   std::vector<UniqueFd> heaps)
    : memory_(std::move(memory)),
      ranks_(std::move(ranks)),
      rank_(rank),
      options_(options),
      heap_files_(std::move(heaps)),
      crowding_(options_.ranks_per_core) {}

bool ShmGroup::map_heaps() {
  std::vector<std::shared_ptr<Segment>> heaps;
  for (auto& file : std::exchange(heap_files_, {})) {
    auto heap = Segment::adopt_heap(std::move(file), Segment::HeapOf::another);
    if (!heap.ok()) {
      HVD_LOG(warning,
              "tensors in shared memory take more time, as this worker cannot read those of "
              "the other workers of its host: "
                  << heap.status().message());
      return false;
    }
    heaps.push_back(std::move(*heap));
  }
  if (!heaps.empty()) heaps_ = std::move(heaps);
  return !heaps_.empty();
}

void ShmGroup::reserve_large_chunks() {
  if (has_large_chunks_) return;
  has_large_chunks_ = false;
  if (memory_.chunk_bytes(ChunkSize::large) == memory_.chunk_bytes()) return;

  const Status reserved = memory_.reserve_large_chunks(rank_);
  has_large_chunks_ = reserved.ok();
  if (reserved.ok()) {
    HVD_LOG(debug, "other programs take the cores: chunks in shared memory become larger");
  } else {
    HVD_LOG(info, "collectives take more time beside other programs: " << reserved.message());
  }
}

int ShmGroup::local_of(int world_rank) const {
  const auto found = std::lower_bound(ranks_.begin(), ranks_.end(), world_rank);
  if (found == ranks_.end() || *found != world_rank) return -1;
  return static_cast<int>(found - ranks_.begin());
}

ShmGroup::Place& ShmGroup::place_for(int process_set, std::span<const int> ranks) {
  const auto [known, is_new] = places_.try_emplace(process_set);
  if (is_new) {
    known->second.here = static_cast<std::size_t>(std::count_if(
        ranks.begin(), ranks.end(), [this](int rank) { return local_of(rank) >= 0; }));
  }
  return known->second;
}

bool ShmGroup::found(int process_set, Place& place) {
  if (!place.looked_for) {
    place.looked_for = true;
    place.index = memory_.place_of(process_set);
    if (!place.index && !full_) {
      full_ = true;
      HVD_LOG(warning, "process set " << process_set
                                      << " and all after it do without shared memory: only "
                                      << ShmLayout::kSets << " sets of a generation have it");
    }
  }
  return place.index.has_value();
}

bool ShmGroup::serves(int process_set, std::span<const int> ranks) {
  Place& place = place_for(process_set, ranks);
  return place.here == ranks.size() && found(process_set, place);
}

bool ShmGroup::serves_part(int process_set, std::span<const int> ranks) {
  Place& place = place_for(process_set, ranks);
  return place.here > 1 && found(process_set, place);
}

std::size_t ShmGroup::place_of(int process_set) { return *places_.at(process_set).index; }

void ShmGroup::abort() {
  aborted_ = true;
  memory_.event().notify_all();
  memory_.lane_event().notify_all();
}

bool ShmGroup::reached(const Step& step) const {
  return std::all_of(step.of.begin(), step.of.end(),
                     [&step](const auto* rank) { return rank->step.load() >= step.value; });
}

void ShmGroup::note_moved(std::size_t bytes) {
  memory_.slot(static_cast<std::size_t>(rank_)).moved.fetch_add(bytes, std::memory_order_relaxed);
}

std::uint64_t ShmGroup::moved_by_late(const Step& step, std::span<const int> ranks) const {
  std::uint64_t moved = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (step.of[i]->step.load() >= step.value) continue;
    moved += memory_.slot(static_cast<std::size_t>(local_of(ranks[i]))).moved.load();
  }
  return moved;
}

// The scheduler wakes a thread where the thread that wakes it runs. Two ranks that take turns in
// waiting then share a core for as long as they please, and another core idles.
bool ShmGroup::seek_own_core(const Step& step) {
  constexpr std::chrono::milliseconds kLongest{320};
  constexpr std::chrono::milliseconds kLongMove{1};
  const int here = ::sched_getcpu();
  const bool is_shared = std::any_of(step.of.begin(), step.of.end(), [&](const auto* rank) {
    const auto reached = rank->step.load();
    return reached > 0 && reached < step.value && rank->core.load() == here;
  });
  if (!is_shared || here < 0) return true;

  // Threads of the program stay where the program has put them.
  const auto now = Clock::now();
  if (CallerProgressScope::is_active() || now < next_move_) return false;
  std::vector<int> taken;
  for (const auto* rank : step.of) taken.push_back(rank->core.load());
  const bool moved = leave_cores(taken);

  // Where another program keeps the other core, the thread gets there late.
  next_move_ = Clock::now();
  const bool was_slow = next_move_ - now > kLongMove;
  between_moves_ = was_slow ? std::min<Duration>(2 * between_moves_, kLongest) : kBetweenMoves;
  next_move_ += between_moves_;
  return moved;
}

Status ShmGroup::await(const Step& step, std::span<const int> ranks, bool patiently) {
  const auto is_over = [this, &step] { return aborted_ || reached(step); };
  const bool may_spin = options_.own_core && !patiently && seek_own_core(step);
  const bool soon = brief_wait_.until(may_spin, is_over);
  if (!soon) CallerProgressScope::about_to_sleep();
  // Ranks that are yet to come may be busy with other hosts, over a slow link.
  Silence silence(Clock::now(), options_.timeout);
  bool over = soon;
  for (bool silent = false; !over && !silent;) {
    over = memory_.event().sleep_until(silence.next_look(), is_over);
    silent = !over && silence.is_over(moved_by_late(step, ranks), Clock::now());
  }
  if (aborted_) return ended();
  if (over) return {};
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (step.of[i]->step.load() < step.value) missing.push_back(cat("rank ", ranks[i]));
  }
  return {Code::deadline_exceeded, cat("shared memory: nothing came from ", join(missing, ", "),
                                       " for ", options_.timeout.count(), " ms")};
}

ShmCollective::ShmCollective(ShmGroup& host, int process_set, std::span<const int> ranks, int rank)
    : host_(host),
      ranks_(ranks.begin(), ranks.end()),
      rank_(rank),
      place_(host.place_of(process_set)),
      subgroup_(&host.subgroups_[{process_set, ranks_}]),
      own_(host.memory_.progress(place_, host.rank_)) {
  for (const int member : ranks_) {
    locals_.push_back(host.local_of(member));
    step_.of.push_back(&host.memory_.progress(place_, locals_.back()));
  }
  step_.value = ++host.operations_[process_set] << kSyncBits;
}

ShmCollective::~ShmCollective() {
  if (!ended_) tell_failed();
}

void ShmCollective::end() {
  ended_ = true;
  const auto called = syncs();
  step_.value = ((step_.value >> kSyncBits) + 1) << kSyncBits;
  own_.step = step_.value;
  if (host_.memory_.waiting_for_ends() > 0) host_.memory_.event().notify();
  measure_crowding(called);
  choose_next_chunk_size(called);
  // Nothing of it was in the chunks; the ranks of the last collective may still read there.
  if (!opened_) return;
  host_.last_subgroup_ = subgroup_;
  host_.last_ranks_ = std::move(ranks_);
  host_.last_end_ = std::move(step_);
}

Status ShmCollective::open() {
  if (host_.aborted_) return ended();
  // Three chunks are enough among the members of one subgroup. Those of another one may still read.
  if (host_.last_subgroup_ != nullptr && host_.last_subgroup_ != subgroup_) {
    auto& memory = host_.memory_;
    ++memory.waiting_for_ends();
    const Status read = host_.await(host_.last_end_, host_.last_ranks_);
    --memory.waiting_for_ends();
    HVD_RETURN_IF_ERROR(read);
  }
  opened_ = true;
  return {};
}

std::size_t ShmCollective::capacity() const {
  return host_.memory_.chunk_bytes(subgroup_->chunk_size);
}

std::byte* ShmCollective::chunk(int rank, std::size_t ahead) const {
  return host_.memory_.chunk(locals_[static_cast<std::size_t>(rank)],
                             (subgroup_->chunks + ahead) % ShmLayout::kChunks,
                             subgroup_->chunk_size);
}

const Segment& ShmCollective::heap(int rank) const {
  return *host_.heaps_[static_cast<std::size_t>(locals_[static_cast<std::size_t>(rank)])];
}

int ShmCollective::ranks_in_heap() const {
  return static_cast<int>(
      std::count_if(step_.of.begin(), step_.of.end(),
                    [](const RankProgress* rank) { return rank->in_heap.load(); }));
}

// The program may write to its tensors afterwards, with stores that know of no other rank, and some
// processors would let these overtake this one. The fence keeps them behind it.
void ShmCollective::tell_failed() {
  own_.failed.exchange(true);
#ifndef __SANITIZE_THREAD__  // it knows no fences, and takes the exchange for one
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// The tensors were read before the last sync(), and these flags are read after it.
Status ShmCollective::check_none_failed() const {
  const bool failed = std::any_of(step_.of.begin(), step_.of.end(),
                                  [](const RankProgress* rank) { return rank->failed.load(); });
  return failed ? ended() : Status();
}

void ShmCollective::tell_core() {
  if (host_.options_.own_core) own_.core.store(::sched_getcpu(), std::memory_order_relaxed);
}

std::uint64_t ShmCollective::syncs() const {
  return step_.value & ((std::uint64_t{1} << kSyncBits) - 1);
}

// The step that follows makes both visible.
void ShmCollective::tell_crowding() {
  const auto* const said = host_.options_.crowded;
  const bool crowded = said != nullptr ? said->load() : host_.crowding_.is_crowded(Clock::now());
  own_.crowded.store(crowded, std::memory_order_relaxed);
  own_.has_large_chunks.store(host_.has_large_chunks_.value_or(false), std::memory_order_relaxed);
}

void ShmCollective::read_crowding() {
  some_crowded_ = std::any_of(step_.of.begin(), step_.of.end(),
                              [](const RankProgress* rank) { return rank->crowded.load(); });
  all_have_large_chunks_ =
      std::all_of(step_.of.begin(), step_.of.end(),
                  [](const RankProgress* rank) { return rank->has_large_chunks.load(); });
}

// Within one collective: the same thread does all of it, and waits for cores only as it needs them.
void ShmCollective::measure_crowding(std::uint64_t syncs) {
  if (!without_core_) return;
  const auto now_without_core = time_without_core();
  const std::size_t chunks = (syncs - kManySyncs) * chunks_of_step_;
  if (now_without_core) {
    host_.crowding_.passed(chunks, *now_without_core - *without_core_, Clock::now());
  }
}

void ShmCollective::choose_next_chunk_size(std::uint64_t syncs) {
  ChunkSize& chunk_size = subgroup_->chunk_size;
  if (syncs >= 2) {
    if (some_crowded_) host_.reserve_large_chunks();
    const bool large = some_crowded_ && all_have_large_chunks_;
    chunk_size = large ? ChunkSize::large : ChunkSize::normal;
    subgroup_->single_steps = 0;
  } else if (chunk_size == ChunkSize::large && ++subgroup_->single_steps > kMostSingleSteps) {
    chunk_size = ChunkSize::normal;
  }
}

Status ShmCollective::sync(bool patiently) {
  // A rank that gave up an operation must not be taken for one that came to it.
  if (host_.aborted_) return ended();
  tell_core();
  if (syncs() == 0) tell_crowding();
  own_.step = ++step_.value;
  if (host_.reached(step_)) {
    host_.memory_.event().notify();
  } else {
    const Status met = host_.await(step_, ranks_, patiently);
    tell_core();  // it may be another one now
    HVD_RETURN_IF_ERROR(met);
  }
  if (syncs() == 1) read_crowding();
  const bool is_measured = subgroup_->chunk_size == ChunkSize::normal;
  if (is_measured && syncs() == kManySyncs) without_core_ = time_without_core();
  return {};
}

}  // namespace hvd::runtime
