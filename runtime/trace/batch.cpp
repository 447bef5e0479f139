#include "runtime/trace/batch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace hvd::runtime::trace {
namespace {

// The wire format is little-endian, and so is every machine that hvd runs on; conversion byte by
// byte would be a measurable cost here.
static_assert(std::endian::native == std::endian::little);

template <typename T>
void put(std::string& out, T value) {
  std::array<char, sizeof(T)> bytes;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled
  std::memcpy(bytes.data(), &value, sizeof(T));
  out.append(bytes.data(), bytes.size());
}

void put_text(std::string& out, std::string_view text) {
  put(out, static_cast<std::uint32_t>(text.size()));
  out.append(text);
}

constexpr std::array<std::string_view, kActivities> kActivityNames = {"WAIT_FOR_DATA",
                                                                      "ALLOCATE_OUTPUT",
                                                                      "INIT_FUSION_BUFFER",
                                                                      "MEMCPY_IN_FUSION_BUFFER",
                                                                      "MEMCPY_OUT_FUSION_BUFFER",
                                                                      "doubling",
                                                                      "halving",
                                                                      "direct",
                                                                      "ring"};

bool read_steps(WireReader& in, Batch& batch) {
  for (std::uint32_t left = in.u32(); left > 0; --left) {
    Step step;
    const auto activity = in.u8();
    step.tensor = in.i32();
    step.begin = in.i64();
    step.end = in.i64();
    if (in.failed() || activity >= kActivities) return false;
    step.activity = static_cast<Activity>(activity);
    batch.steps.push_back(step);
  }
  return !in.failed();
}

// A label is the low bits of a cache id, or a number of its own; the bits above them say which, and
// what follows. The ids of one frame are never so far apart that two labels are equal.
constexpr std::uint32_t kUnnamed = 1U << 31;
constexpr std::uint32_t kLongTimes = 1U << 30;
constexpr std::uint32_t kError = 1U << 29;
constexpr std::uint32_t kNumber = kError - 1;

struct ShortTensor {
  std::uint32_t label;
  std::int32_t enqueued;  // before the batch's end
  std::int32_t asked;
};
static_assert(sizeof(ShortTensor) == 12);

bool is_short(Nanoseconds time, Nanoseconds end) {
  const auto before = end - time;
  return before == static_cast<std::int32_t>(before);
}

// Input is not trusted, so the subtraction must not overflow.
Nanoseconds before(Nanoseconds end, std::int32_t by) {
  return static_cast<Nanoseconds>(static_cast<std::uint64_t>(end) -
                                  static_cast<std::uint64_t>(static_cast<std::int64_t>(by)));
}

}  // namespace

std::string_view activity_name(Activity activity) {
  return kActivityNames[static_cast<std::size_t>(activity)];
}

void BatchWriter::begin(const Batch& batch, std::size_t tensors) {
  put(batches_, batch.number);
  put(batches_, static_cast<std::int32_t>(batch.process_set));
  put(batches_, static_cast<std::int32_t>(batch.set_size));
  put(batches_, static_cast<std::uint8_t>(batch.unfinished));
  put(batches_, batch.decided);
  put(batches_, batch.begun);
  put(batches_, batch.ended);

  put_text(batches_, batch.operation);
  put(batches_, static_cast<std::uint32_t>(batch.steps.size()));
  for (const Step& step : batch.steps) {
    put(batches_, static_cast<std::uint8_t>(step.activity));
    put(batches_, step.tensor);
    put(batches_, step.begin);
    put(batches_, step.end);
  }

  put(batches_, static_cast<std::uint32_t>(tensors));
  tensors_ += static_cast<std::uint32_t>(tensors);
  ended_ = batch.ended;

  next_ = batches_.size();
  batches_.resize(next_ + tensors * sizeof(ShortTensor));
}

std::uint32_t BatchWriter::label_of(const Request& request, std::uint64_t cache_id) {
  if (cache_id < neighbours_.begin || cache_id >= neighbours_.end) {
    const auto after = std::upper_bound(
        known_.intervals().begin(), known_.intervals().end(), cache_id,
        [](std::uint64_t id, const IntervalSet::Interval& some) { return id < some.begin; });
    if (after == known_.intervals().begin() || cache_id >= std::prev(after)->end) {
      return new_label(request, cache_id);
    }
    neighbours_ = *std::prev(after);
  }
  return static_cast<std::uint32_t>(cache_id) & kNumber;
}

std::uint32_t BatchWriter::new_label(const Request& request, std::uint64_t cache_id) {
  const bool is_cached = cache_id != ResponseTensor::kNotCached;
  if (is_cached) known_.insert(cache_id);
  const std::uint32_t label = is_cached ? static_cast<std::uint32_t>(cache_id) & kNumber
                                        : kUnnamed | (unnamed_++ & kNumber);
  ++label_count_;
  put(labels_, label);
  put_text(labels_, request.name);
  put(labels_, static_cast<std::uint8_t>(request.kind));
  put(labels_, static_cast<std::uint8_t>(request.type));
  put(labels_, static_cast<std::uint32_t>(request.shape.size()));
  for (const auto extent : request.shape) put(labels_, extent);
  return label;
}

void BatchWriter::add(const Request& request, std::uint64_t cache_id, Nanoseconds enqueued,
                      Nanoseconds asked, std::string_view error) {
  ShortTensor tensor{label_of(request, cache_id), static_cast<std::int32_t>(ended_ - enqueued),
                     static_cast<std::int32_t>(ended_ - asked)};
  if (!is_short(enqueued, ended_) || !is_short(asked, ended_)) {
    tensor.label |= kLongTimes;
    put(batches_, enqueued);
    put(batches_, asked);
  }
  if (!error.empty()) {
    tensor.label |= kError;
    put_text(batches_, error);
  }
  std::memcpy(batches_.data() + next_, &tensor, sizeof(tensor));
  next_ += sizeof(tensor);
}

std::string BatchWriter::take() {
  std::string all;
  all.reserve(sizeof(label_count_) + size());
  put(all, label_count_);
  all += labels_;
  all += batches_;
  *this = {};
  return all;
}

BatchReader::BatchReader(std::string_view bytes) : in_(bytes) {
  for (std::uint32_t left = in_.u32(); left > 0 && !broken_; --left) broken_ = !read_label();
}

bool BatchReader::read_label() {
  const auto label = in_.u32();
  auto info = std::make_shared<Batch::TensorInfo>();
  info->name = in_.str();
  const auto kind = in_.u8();
  const auto type = in_.u8();
  for (std::uint32_t left = in_.u32(); left > 0 && !in_.failed(); --left) {
    info->shape.push_back(in_.i64());
  }
  info->kind = static_cast<Kind>(kind);
  info->type = static_cast<DataType>(type);
  labels_[label] = std::move(info);
  return !in_.failed() && kind <= static_cast<std::uint8_t>(Kind::send_recv) &&
         type <= static_cast<std::uint8_t>(DataType::float64);
}

bool BatchReader::read_tensors(Batch& batch) {
  std::vector<ShortTensor> all;
  for (std::uint32_t left = in_.u32(); left > 0 && !in_.failed(); --left) {
    all.push_back({in_.u32(), in_.i32(), in_.i32()});
  }

  batch.tensors.reserve(all.size());
  for (const auto& [label, enqueued, asked] : all) {
    const auto known = labels_.find(label & (kUnnamed | kNumber));
    if (known == labels_.end()) return false;
    Batch::Tensor& tensor = batch.tensors.emplace_back();
    tensor.info = known->second;
    const bool is_long = (label & kLongTimes) != 0;
    tensor.enqueued = is_long ? in_.i64() : before(batch.ended, enqueued);
    tensor.asked = is_long ? in_.i64() : before(batch.ended, asked);
    if ((label & kError) != 0) tensor.error = in_.str();
  }

  return !in_.failed();
}

std::optional<Batch> BatchReader::next() {
  if (broken_ || in_.at_end()) return std::nullopt;
  broken_ = true;  // unless the batch turns out to be valid

  Batch batch;
  batch.number = in_.u64();
  batch.process_set = in_.i32();
  batch.set_size = in_.i32();
  batch.unfinished = in_.boolean();
  batch.decided = in_.i64();
  batch.begun = in_.i64();
  batch.ended = in_.i64();
  batch.operation = in_.str();

  if (in_.failed() || !read_steps(in_, batch)) return std::nullopt;
  broken_ = !read_tensors(batch);
  return broken_ ? std::nullopt : std::optional(std::move(batch));
}

}  // namespace hvd::runtime::trace
