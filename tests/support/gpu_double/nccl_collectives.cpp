// SPDX-License-Identifier: Apache-2.0
// The arithmetic of collectives. Results are stored separately and written when each rank's launch finishes: one rank
// may finish long before another. Sums are computed in rank order, in the element's own type. NCCL promises no order,
// so tests should use only values whose sums are exact.
#include "nccl_world.hpp"

#include <shardmesh/kernels/small_floats.hpp>

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace gpu_double {
namespace {

template <class T>
T combined(T a, T b, int reduction) {
  switch (reduction) {
    case nccl_prod:
      return static_cast<T>(a * b);
    case nccl_max:
      return std::max(a, b);
    case nccl_min:
      return std::min(a, b);
    default:
      return static_cast<T>(a + b);
  }
}

template <class T>
struct plain {
  using value = T;
  static T load(const unsigned char* from) {
    T made;
    std::memcpy(&made, from, sizeof made);
    return made;
  }
  static void store(unsigned char* to, T what) { std::memcpy(to, &what, sizeof what); }
  static T rounded(T what) { return what; }
};

// A small float, kept as float32 and rounded after every step.
template <class Bits, auto From, auto To>
struct small {
  using value = float;
  static float load(const unsigned char* from) {
    Bits bits;
    std::memcpy(&bits, from, sizeof bits);
    return shardmesh::small_floats::as_float(From(bits));
  }
  static void store(unsigned char* to, float what) {
    const Bits bits = To(shardmesh::small_floats::as_bits(what));
    std::memcpy(to, &bits, sizeof bits);
  }
  static float rounded(float what) {
    unsigned char bytes[sizeof(Bits)];
    store(bytes, what);
    return load(bytes);
  }
};

template <class Format>
void reduce_as(const std::vector<part*>& parts, std::size_t first, std::size_t count, unsigned char* to,
               int reduction) {
  using value = typename Format::value;
  // Integers are added as unsigned ones, so that they wrap.
  using sum = typename std::conditional_t<std::is_integral_v<value>, std::make_unsigned<value>,
                                          std::type_identity<value>>::type;
  constexpr std::size_t width = std::is_same_v<Format, plain<value>> ? sizeof(value) : 0;
  const std::size_t bytes = width != 0 ? width : size_of_type(parts[0]->type);
  for (std::size_t i = 0; i < count; ++i) {
    value total{};
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      const value next = Format::load(static_cast<const unsigned char*>(parts[rank]->from) + (first + i) * bytes);
      if (rank == 0)
        total = next;
      else if (reduction == nccl_max || reduction == nccl_min)
        total = combined(total, next, reduction);
      else
        total =
            Format::rounded(static_cast<value>(combined(static_cast<sum>(total), static_cast<sum>(next), reduction)));
    }
    if (reduction == nccl_avg) total = Format::rounded(static_cast<value>(total / static_cast<value>(parts.size())));
    Format::store(to + i * bytes, total);
  }
}

std::uint16_t to_bfloat16(std::uint32_t bits) {
  return shardmesh::small_floats::to_bfloat16(bits, 0x7FFF);
}

void reduce(const std::vector<part*>& parts, std::size_t first, std::size_t count, std::vector<unsigned char>& result) {
  namespace floats = shardmesh::small_floats;
  result.resize(count * size_of_type(parts[0]->type));
  const auto with = [&]<class Format>(Format) {
    reduce_as<Format>(parts, first, count, result.data(), parts[0]->reduction);
  };
  switch (parts[0]->type) {
    case nccl_int8:
      return with(plain<std::int8_t>{});
    case nccl_uint8:
      return with(plain<std::uint8_t>{});
    case nccl_int32:
      return with(plain<std::int32_t>{});
    case nccl_uint32:
      return with(plain<std::uint32_t>{});
    case nccl_int64:
      return with(plain<std::int64_t>{});
    case nccl_uint64:
      return with(plain<std::uint64_t>{});
    case nccl_float32:
      return with(plain<float>{});
    case nccl_float64:
      return with(plain<double>{});
    case nccl_float16:
      return with(small<std::uint16_t, floats::from_float16, floats::to_float16>{});
    case nccl_bfloat16:
      return with(small<std::uint16_t, floats::from_bfloat16, to_bfloat16>{});
    default:
      return;  // the call refuses it
  }
}

void append(std::vector<unsigned char>& to, const void* from, std::size_t begin, std::size_t bytes) {
  const auto* const data = static_cast<const unsigned char*>(from);
  if (bytes > 0) to.insert(to.end(), data + begin, data + begin + bytes);
}

}  // namespace

void carry_out(const std::vector<part*>& parts) {
  const std::size_t count = parts[0]->count;
  const std::size_t bytes = count * size_of_type(parts[0]->type);
  const auto root = static_cast<std::size_t>(parts[0]->peer);
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    std::vector<unsigned char>& result = parts[rank]->result;
    switch (parts[rank]->kind) {
      case part_kind::all_gather:
        for (const part* each : parts) append(result, each->from, 0, bytes);
        break;
      case part_kind::all_to_all:
        for (const part* each : parts) append(result, each->from, rank * bytes, bytes);
        break;
      case part_kind::broadcast:
        append(result, parts[root]->from, 0, bytes);
        break;
      case part_kind::reduce_scatter:
        reduce(parts, rank * count, count, result);
        break;
      case part_kind::all_reduce:
        reduce(parts, 0, count, result);
        break;
      case part_kind::reduce:
        if (rank == root) reduce(parts, 0, count, result);
        break;
      case part_kind::send:
      case part_kind::receive:
        break;
    }
  }
}

}  // namespace gpu_double
