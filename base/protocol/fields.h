// Messages name their fields once, and from that list come their bytes and the way back:
//
//     struct Stop {
//       static constexpr Kind kKind = Kind::stop;
//       Incarnation incarnation = kAllWorkers;
//       std::string reason;
//       HVD_MESSAGE_FIELDS(Stop, incarnation, reason)
//     };
//
// encode() gives a whole frame (base/frame.h) of the kind kKind; decode() reads the payload of one
// that nobody has checked. Fields lie one after the other, as base/wire.h writes them: integers of
// the width of their type, enumerations as the integer below them, bool as one byte, strings and
// vectors with a 32-bit length before them. An enumeration needs a function check(E), and a message
// whose fields depend on each other a member check(); both return a Status.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/frame.h"
#include "base/status.h"
#include "base/wire.h"

namespace hvd {

class FieldWriter {
 public:
  void operator()(const auto&... fields) { (put(fields), ...); }
  const std::string& bytes() const { return wire_.bytes(); }

 private:
  void put(bool value) { wire_.boolean(value); }
  void put(char value) { wire_.u8(static_cast<std::uint8_t>(value)); }
  void put(std::uint8_t value) { wire_.u8(value); }
  void put(std::uint16_t value) { wire_.u16(value); }
  void put(std::uint32_t value) { wire_.u32(value); }
  void put(std::uint64_t value) { wire_.u64(value); }
  void put(std::int32_t value) { wire_.i32(value); }
  void put(const std::string& value) { wire_.str(value); }

  template <typename T>
  void put(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      put(static_cast<std::underlying_type_t<T>>(value));
    } else {
      const_cast<T&>(value).fields(*this);  // NOLINT: a writer only reads
    }
  }
  template <typename T>
  void put(const std::vector<T>& values) {
    put(static_cast<std::uint32_t>(values.size()));
    for (const auto& value : values) put(value);
  }

  WireWriter wire_;
};

// After the first field that does not fit, every further one stays zero or empty, and finish() says
// so.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : wire_(bytes) {}
  void operator()(auto&... fields) { (get(fields), ...); }
  // ok if every field was there, every enumeration has a value of its own, and nothing is left.
  Status finish(std::string_view what) const {
    HVD_RETURN_IF_ERROR(wire_.finish(what));
    return wrong_value_;
  }

 private:
  void get(bool& value) { value = wire_.boolean(); }
  void get(char& value) { value = static_cast<char>(wire_.u8()); }
  void get(std::uint8_t& value) { value = wire_.u8(); }
  void get(std::uint16_t& value) { value = wire_.u16(); }
  void get(std::uint32_t& value) { value = wire_.u32(); }
  void get(std::uint64_t& value) { value = wire_.u64(); }
  void get(std::int32_t& value) { value = wire_.i32(); }
  void get(std::string& value) { value = wire_.str(); }

  template <typename T>
  void get(T& value) {
    if constexpr (std::is_enum_v<T>) {
      std::underlying_type_t<T> number{};
      get(number);
      value = static_cast<T>(number);
      if (const Status known = check(value); wrong_value_.ok() && !known.ok()) wrong_value_ = known;
    } else {
      value.fields(*this);
    }
  }
  template <typename T>
  void get(std::vector<T>& values) {
    // Each value takes at least a byte, so a lie about their number ends soon.
    for (std::uint32_t left = wire_.u32(); left > 0 && !wire_.failed(); --left) {
      get(values.emplace_back());
    }
  }

  WireReader wire_;
  Status wrong_value_;
};

template <typename Message>
std::string encode_message(const Message& message) {
  FieldWriter writer;
  const_cast<Message&>(message).fields(writer);  // NOLINT: a writer only reads
  return encode_frame(static_cast<std::uint16_t>(Message::kKind), writer.bytes());
}

// `what` names the message in errors.
template <typename Message>
Result<Message> decode_message(std::string_view payload, std::string_view what) {
  FieldReader reader(payload);
  Message message;
  message.fields(reader);
  HVD_RETURN_IF_ERROR(reader.finish(what));
  if constexpr (requires { message.check(); }) HVD_RETURN_IF_ERROR(message.check());
  return message;
}

}  // namespace hvd

#define HVD_MESSAGE_FIELDS(Message, ...)                                \
  void fields([[maybe_unused]] auto& archive) { archive(__VA_ARGS__); } \
  std::string encode() const { return hvd::encode_message(*this); }     \
  static hvd::Result<Message> decode(std::string_view payload) {        \
    return hvd::decode_message<Message>(payload, #Message);             \
  }
