// Reference implementation of the collectives, as plain as possible: tensors are vectors of double,
// one element after the other, and only at the end they become the bytes of a type. For tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <hvd/float8.h>
#include <hvd/types.h>

#include "runtime/core/arithmetic.h"
#include "runtime/core/sum_tree.h"

namespace hvd::test {

using Values = std::vector<double>;
using Bytes = std::vector<std::byte>;

inline constexpr DataType kAllTypes[] = {
    DataType::boolean,    DataType::uint8,   DataType::int8,    DataType::uint16,
    DataType::int16,      DataType::int32,   DataType::int64,   DataType::float16,
    DataType::bfloat16,   DataType::float32, DataType::float64, DataType::float8_e4m3,
    DataType::float8_e5m2};

inline bool is_signed(DataType type) {
  return type != DataType::boolean && type != DataType::uint8 && type != DataType::uint16;
}
inline bool is_floating(DataType type) { return type >= DataType::float16; }

template <typename T>
void put(Bytes& bytes, std::size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}
template <typename T>
T get(const Bytes& bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

inline Bytes encode(DataType type, const Values& values) {
  Bytes bytes(values.size() * size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    switch (type) {
      case DataType::boolean:
        put<std::uint8_t>(bytes, i, value != 0 ? 1 : 0);
        break;
      case DataType::uint8:
      case DataType::int8:
        put<std::int8_t>(bytes, i, static_cast<std::int8_t>(static_cast<std::int64_t>(value)));
        break;
      case DataType::uint16:
      case DataType::int16:
        put<std::int16_t>(bytes, i, static_cast<std::int16_t>(static_cast<std::int64_t>(value)));
        break;
      case DataType::int32:
        put<std::int32_t>(bytes, i, static_cast<std::int32_t>(static_cast<std::int64_t>(value)));
        break;
      case DataType::int64:
        put<std::int64_t>(bytes, i, static_cast<std::int64_t>(value));
        break;
      case DataType::float16:
        put(bytes, i, runtime::float_to_half(static_cast<float>(value)));
        break;
      case DataType::bfloat16:
        put(bytes, i, runtime::float_to_bfloat16(static_cast<float>(value)));
        break;
      case DataType::float32:
        put(bytes, i, static_cast<float>(value));
        break;
      case DataType::float64:
        put(bytes, i, value);
        break;
      case DataType::float8_e4m3:
        put(bytes, i, float8_e4m3(static_cast<float>(value)));
        break;
      case DataType::float8_e5m2:
        put(bytes, i, float8_e5m2(static_cast<float>(value)));
        break;
    }
  }
  return bytes;
}

inline Values decode(DataType type, const Bytes& bytes) {
  Values values(bytes.size() / size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (type) {
      case DataType::boolean:
      case DataType::uint8:
        values[i] = get<std::uint8_t>(bytes, i);
        break;
      case DataType::int8:
        values[i] = get<std::int8_t>(bytes, i);
        break;
      case DataType::uint16:
        values[i] = get<std::uint16_t>(bytes, i);
        break;
      case DataType::int16:
        values[i] = get<std::int16_t>(bytes, i);
        break;
      case DataType::int32:
        values[i] = get<std::int32_t>(bytes, i);
        break;
      case DataType::int64:
        values[i] = static_cast<double>(get<std::int64_t>(bytes, i));
        break;
      case DataType::float16:
        values[i] = runtime::half_to_float(get<std::uint16_t>(bytes, i));
        break;
      case DataType::bfloat16:
        values[i] = runtime::bfloat16_to_float(get<std::uint16_t>(bytes, i));
        break;
      case DataType::float32:
        values[i] = get<float>(bytes, i);
        break;
      case DataType::float64:
        values[i] = get<double>(bytes, i);
        break;
      case DataType::float8_e4m3:
        values[i] = static_cast<float>(get<float8_e4m3>(bytes, i));
        break;
      case DataType::float8_e5m2:
        values[i] = static_cast<float>(get<float8_e5m2>(bytes, i));
        break;
    }
  }
  return values;
}

// The input of a rank: small numbers that differ between ranks, elements, and tensors. Every type
// can hold their sums and products exactly (or, of 8-bit integers, wrap in the same way).
inline Values values_of(DataType type, ReduceOp op, int rank, std::size_t count, int salt) {
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto mix = static_cast<std::int64_t>(i * 7 + static_cast<std::size_t>(rank * 5 + salt));
    if (type == DataType::boolean) {
      values[i] = (mix % 3) != 0 ? 1 : 0;
    } else if (op == ReduceOp::product) {
      values[i] = mix % 4 == 0 ? 2 : 1;
    } else if (is_float8(type)) {
      values[i] = static_cast<double>(mix % 3 - 1);
    } else {
      values[i] = static_cast<double>(mix % 11 - (is_signed(type) ? 5 : 0));
    }
  }
  return values;
}

inline double reduce_two(DataType type, ReduceOp op, double a, double b) {
  if (type == DataType::boolean) {
    const bool any = op == ReduceOp::sum || op == ReduceOp::max;
    return any ? (a != 0 || b != 0) : (a != 0 && b != 0);
  }
  switch (op) {
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::product:
      return a * b;
    default:
      return a + b;
  }
}

// As the type would hold it: sums that do not fit wrap around before they are divided.
inline Values stored(DataType type, const Values& values) {
  return decode(type, encode(type, values));
}

inline Values scaled(DataType type, Values values, double factor) {
  if (factor == 1.0) return values;
  for (auto& value : values) value = type == DataType::boolean ? value : value * factor;
  if (!is_floating(type)) {
    for (auto& value : values) value = static_cast<double>(static_cast<std::int64_t>(value));
  }
  return stored(type, values);
}

// All ranks' tensors reduced, as every rank should see it.
inline Values reduced(DataType type, ReduceOp op, const std::vector<Values>& inputs,
                      double prescale = 1.0, double postscale = 1.0) {
  Values result = scaled(type, inputs.front(), prescale);
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    const Values other = scaled(type, inputs[rank], prescale);
    for (std::size_t i = 0; i < result.size(); ++i) {
      result[i] = reduce_two(type, op, result[i], other[i]);
    }
  }
  result = stored(type, result);
  if (op == ReduceOp::average && type != DataType::boolean) {
    for (auto& value : result) {
      value /= static_cast<double>(inputs.size());
      if (!is_floating(type)) value = static_cast<double>(static_cast<std::int64_t>(value));
    }
    result = stored(type, result);
  }
  return scaled(type, result, postscale);
}

// A tree whose leaves together are the inputs of so many ranks: so its sum is theirs. A rank has up
// to `most` leaves, and with several one rank has none.
struct LeavesOfInputs {
  // The elements i of the input of a rank for which i % parts is `part`; the others are zeros.
  struct Leaf {
    int input = 0;
    int part = 0;
    int parts = 1;
    Bytes of(Bytes bytes, std::size_t element) const {
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        const auto own =
            static_cast<std::size_t>(part) == i / element % static_cast<std::size_t>(parts);
        if (!own) bytes[i] = std::byte{0};
      }
      return bytes;
    }
  };
  std::vector<std::vector<Leaf>> of_rank;  // by slot
  std::shared_ptr<const runtime::SumTree> tree;

  LeavesOfInputs(int ranks, int most) : of_rank(static_cast<std::size_t>(ranks)) {
    std::vector<runtime::SumTree::Leaf> leaves;
    for (int rank = 0; rank < ranks; ++rank) {
      const int owner = rank == 1 && ranks > 2 && most > 1 ? 0 : rank;
      auto& own = of_rank[static_cast<std::size_t>(owner)];
      const int parts = 1 + (rank + ranks) % most;
      for (int part = 0; part < parts; ++part) own.push_back({rank, part, parts});
    }
    for (int slot = 0; static_cast<int>(leaves.size()) < count(); ++slot) {
      for (int rank = 0; rank < ranks; ++rank) {
        const auto has = static_cast<int>(of_rank[static_cast<std::size_t>(rank)].size());
        if (slot < has) leaves.push_back({rank, slot});
      }
    }
    // Neighbours, then neighbours of these.
    std::vector<runtime::Addition> additions;
    for (std::size_t distance = 1; distance < leaves.size(); distance *= 2) {
      for (std::size_t leaf = 0; leaf + distance < leaves.size(); leaf += 2 * distance) {
        additions.push_back({leaf, leaf + distance});
      }
    }
    tree = std::make_shared<const runtime::SumTree>(std::move(leaves), additions, ranks);
  }

 private:
  int count() const {
    std::size_t all = 0;
    for (const auto& own : of_rank) all += own.size();
    return static_cast<int>(all);
  }
};

// adasum along the same tree: the ranks beyond the last power of two first, then pairs.
inline Values adasum_of(std::vector<Values> vectors) {
  const auto pair = [](const Values& a, const Values& b) {
    double ab = 0;
    double aa = 0;
    double bb = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      ab += a[i] * b[i];
      aa += a[i] * a[i];
      bb += b[i] * b[i];
    }
    Values sum(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      sum[i] = (aa > 0 ? 1 - ab / (2 * aa) : 1) * a[i] + (bb > 0 ? 1 - ab / (2 * bb) : 1) * b[i];
    }
    return sum;
  };
  std::size_t core = 1;
  while (core * 2 <= vectors.size()) core *= 2;
  for (std::size_t extra = core; extra < vectors.size(); ++extra) {
    vectors[extra - core] = pair(vectors[extra - core], vectors[extra]);
  }
  for (std::size_t distance = 1; distance < core; distance *= 2) {
    for (std::size_t i = 0; i < core; i += 2 * distance) {
      vectors[i] = pair(vectors[i], vectors[i + distance]);
    }
  }
  return vectors[0];
}

}  // namespace hvd::test
