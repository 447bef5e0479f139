#include "runtime/trace/batch.h"

#include <array>
#include <bit>
#include <cstring>

namespace hvd::runtime::trace {
namespace {

// The wire is little-endian, and so is every machine that hvd runs on; this is the one place where
// a byte at a time would be felt.
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

constexpr std::array<std::string_view, kActivities> kActivityNames = {
    "WAIT_FOR_DATA", "ALLOCATE_OUTPUT", "INIT_FUSION_BUFFER", "MEMCPY_IN_FUSION_BUFFER",
    "MEMCPY_OUT_FUSION_BUFFER"};

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

bool read_tensor(WireReader& in, Batch::Tensor& tensor) {
  tensor.name = in.str();
  const auto kind = in.u8();
  const auto type = in.u8();
  for (std::uint32_t left = in.u32(); left > 0 && !in.failed(); --left) {
    tensor.shape.push_back(in.i64());
  }
  tensor.enqueued = in.i64();
  tensor.asked = in.i64();
  tensor.error = in.str();
  tensor.kind = static_cast<Kind>(kind);
  tensor.type = static_cast<DataType>(type);
  return !in.failed() && kind <= static_cast<std::uint8_t>(Kind::remove_process_set) &&
         type <= static_cast<std::uint8_t>(DataType::float64);
}

}  // namespace

std::string_view activity_name(Activity activity) {
  return kActivityNames[static_cast<std::size_t>(activity)];
}

void append_batch(std::string& out, const Batch& batch, std::size_t tensors) {
  put(out, batch.number);
  put(out, static_cast<std::int32_t>(batch.process_set));
  put(out, static_cast<std::int32_t>(batch.set_size));
  put(out, static_cast<std::uint8_t>(batch.unfinished));
  put(out, batch.decided);
  put(out, batch.begun);
  put(out, batch.ended);
  put_text(out, batch.operation);
  put(out, static_cast<std::uint32_t>(batch.steps.size()));
  for (const Step& step : batch.steps) {
    put(out, static_cast<std::uint8_t>(step.activity));
    put(out, step.tensor);
    put(out, step.begin);
    put(out, step.end);
  }
  put(out, static_cast<std::uint32_t>(tensors));
}

void append_tensor(std::string& out, std::string_view name, Kind kind, DataType type,
                   const std::vector<std::int64_t>& shape, Nanoseconds enqueued, Nanoseconds asked,
                   std::string_view error) {
  put_text(out, name);
  put(out, static_cast<std::uint8_t>(kind));
  put(out, static_cast<std::uint8_t>(type));
  put(out, static_cast<std::uint32_t>(shape.size()));
  for (const auto extent : shape) put(out, extent);
  put(out, enqueued);
  put(out, asked);
  put_text(out, error);
}

std::optional<Batch> read_batch(WireReader& in) {
  Batch batch;
  batch.number = in.u64();
  batch.process_set = in.i32();
  batch.set_size = in.i32();
  batch.unfinished = in.boolean();
  batch.decided = in.i64();
  batch.begun = in.i64();
  batch.ended = in.i64();
  batch.operation = in.str();
  if (in.failed() || !read_steps(in, batch)) return std::nullopt;
  for (std::uint32_t left = in.u32(); left > 0; --left) {
    if (!read_tensor(in, batch.tensors.emplace_back())) return std::nullopt;
  }
  return in.failed() ? std::nullopt : std::optional(std::move(batch));
}

}  // namespace hvd::runtime::trace
