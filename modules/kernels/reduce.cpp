// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/kernels/small_floats.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.kernels;

import :lanes;
import :loops;

namespace shardmesh {
namespace {

result<void> check_op(dtype type, reduce_op op) {
  if (is_combinable(type, op)) return {};
  return fail(errc::unsupported, std::string(to_string(op)) + " is not defined on " + std::string(name(type)));
}

template <class T>
T add(T a, T b) {
  return a + b;
}
template <class T>
T multiply(T a, T b) {
  return a * b;
}
// Signed sums and products wrap.
std::int64_t add(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
std::int64_t multiply(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}
template <class T>
T smaller(T a, T b) {
  return b < a || b != b ? b : a;
}
template <class T>
T larger(T a, T b) {
  return a < b || b != b ? b : a;
}

template <class T>
struct is_complex : std::false_type {};
template <class T>
struct is_complex<std::complex<T>> : std::true_type {};

// a[i] = a[i] op b[i] on lanes of type T.
template <class T, class Op>
void combine_with(pass_buffer& a, const pass_buffer& b, std::int64_t count, Op op) {
  for (std::int64_t i = 0; i < count; ++i) {
    T x, y;
    std::memcpy(&x, a.bytes + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    std::memcpy(&y, b.bytes + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    x = op(x, y);
    std::memcpy(a.bytes + i * static_cast<std::int64_t>(sizeof(T)), &x, sizeof(T));
  }
}

template <class T>
void combine_lanes(pass_buffer& a, const pass_buffer& b, std::int64_t count, reduce_op op) {
  if (op == reduce_op::sum || op == reduce_op::avg)
    return combine_with<T>(a, b, count, [](T x, T y) { return add(x, y); });
  if (op == reduce_op::product) return combine_with<T>(a, b, count, [](T x, T y) { return multiply(x, y); });
  if constexpr (!is_complex<T>::value) {
    if (op == reduce_op::min) return combine_with<T>(a, b, count, [](T x, T y) { return smaller(x, y); });
    if (op == reduce_op::max) return combine_with<T>(a, b, count, [](T x, T y) { return larger(x, y); });
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == reduce_op::band) return combine_with<T>(a, b, count, [](T x, T y) { return x & y; });
    if (op == reduce_op::bor) return combine_with<T>(a, b, count, [](T x, T y) { return x | y; });
    if (op == reduce_op::bxor) return combine_with<T>(a, b, count, [](T x, T y) { return x ^ y; });
  }
}

void combine(lane which, pass_buffer& a, const pass_buffer& b, std::int64_t count, reduce_op op) {
  switch (which) {
    case lane::i64:
      return combine_lanes<std::int64_t>(a, b, count, op);
    case lane::u64:
      return combine_lanes<std::uint64_t>(a, b, count, op);
    case lane::f32:
      return combine_lanes<float>(a, b, count, op);
    case lane::f64:
      return combine_lanes<double>(a, b, count, op);
    case lane::c64:
      return combine_lanes<std::complex<float>>(a, b, count, op);
    case lane::c128:
      return combine_lanes<std::complex<double>>(a, b, count, op);
    case lane::none:
      return;
  }
}

// Loads a pass of each view, changes the lanes of the first, and stores them.
template <class Change>
void for_each_pass(const tensor_view& to, const const_tensor_view& from, Change change) {
  const loop_nest nest = free_nest(to, from);
  const loop_nest::loop inner = nest.rank > 0 ? nest.inner() : loop_nest::loop{1, 0, 0};
  pass_buffer lanes;
  for_each_outer(nest, 1, [&](std::int64_t a, std::int64_t b) {
    for (std::int64_t done = 0; done < inner.size; done += pass_length) {
      const std::int64_t count = std::min(pass_length, inner.size - done);
      std::byte* const target = to.data + (a + done * inner.a) / 8;
      load_lanes(to.type, target, inner.a / 8, count, lanes);
      change(lanes, from.data + (b + done * inner.b) / 8, inner.b / 8, count);
      store_lanes(to.type, to.type, lanes, target, inner.a / 8, count);
    }
  });
}

template <class Function>
void change_floats(lane which, pass_buffer& lanes, std::int64_t count, Function function) {
  const auto run = [&]<class T>(T, std::int64_t parts) {
    for (std::int64_t i = 0; i < parts; ++i) {
      T value;
      std::memcpy(&value, lanes.bytes + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
      value = static_cast<T>(function(static_cast<double>(value)));
      std::memcpy(lanes.bytes + i * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
    }
  };
  if (which == lane::f32 || which == lane::c64) return run(float{}, which == lane::c64 ? 2 * count : count);
  run(double{}, which == lane::c128 ? 2 * count : count);
}

template <class Function>
result<void> change_view(const tensor_view& view, std::string_view what, Function function) {
  SHARDMESH_TRY(check_host_memory(view));
  const lane which = lane_of(view.type);
  if (!is_scalable(view.type))
    return fail(errc::unsupported, "cannot " + std::string(what) + " " + std::string(name(view.type)));
  for_each_pass(view, view, [&](pass_buffer& lanes, const std::byte*, std::int64_t, std::int64_t count) {
    change_floats(which, lanes, count, function);
  });
  return {};
}

// The largest value of a format: infinity if it has one.
double largest(dtype type) {
  switch (type) {
    case dtype::float8_e4m3fn:
      return 448;
    case dtype::float8_e4m3fnuz:
      return 240;
    case dtype::float8_e5m2fnuz:
      return 57344;
    default:
      return std::numeric_limits<double>::infinity();
  }
}

// Writes the identity as one element of a dtype.
void write_identity(dtype type, reduce_op op, std::byte* element) {
  const auto put = [&](dtype lane_type, auto value) {
    pass_buffer one;
    std::memcpy(one.bytes, &value, sizeof value);
    store_lanes(type, lane_type, one, element, item_bytes(type), 1);
  };
  const bool unsigned_type = type == dtype::boolean || type == dtype::uint8 || type == dtype::uint16 ||
                             type == dtype::uint32 || type == dtype::uint64;
  const bool integral = kind(type) == dtype_kind::integer || kind(type) == dtype_kind::boolean;
  const int width = type == dtype::boolean ? 1 : bits(type);
  const std::uint64_t ones = integral ? ~std::uint64_t{0} >> (64 - width) : 0;
  switch (op) {
    case reduce_op::sum:
    case reduce_op::avg:
    case reduce_op::bor:
    case reduce_op::bxor:
      return put(dtype::int64, std::int64_t{0});
    case reduce_op::product:
      return put(dtype::int64, std::int64_t{1});
    case reduce_op::band:
      return put(dtype::uint64, ones);
    case reduce_op::min:
      if (integral) return put(dtype::uint64, unsigned_type ? ones : ones >> 1);
      return put(dtype::float64, largest(type));
    case reduce_op::max:
      if (integral) return put(dtype::uint64, unsigned_type ? std::uint64_t{0} : (ones >> 1) + 1);
      return put(dtype::float64, -largest(type));
    case reduce_op::none:
      return;
  }
}

}  // namespace

bool is_combinable(dtype type, reduce_op op) {
  if (op == reduce_op::none || lane_of(type) == lane::none || bits(type) % 8 != 0 || type == dtype::float8_e8m0fnu)
    return false;
  const bool bitwise = op == reduce_op::band || op == reduce_op::bor || op == reduce_op::bxor;
  switch (kind(type)) {
    case dtype_kind::boolean:
    case dtype_kind::integer:
      return op != reduce_op::avg;
    case dtype_kind::floating:
      return !bitwise;
    case dtype_kind::complex:
      return op == reduce_op::sum || op == reduce_op::avg || op == reduce_op::product;
    case dtype_kind::bits:
      return false;
  }
  return false;
}

result<void> accumulate(const tensor_view& to, const const_tensor_view& from, reduce_op op) {
  SHARDMESH_TRY(check_pair(to, from));
  SHARDMESH_TRY(check_op(to.type, op));
  if (!is_convertible(from.type, to.type))
    return fail(errc::unsupported,
                "no conversion from " + std::string(name(from.type)) + " to " + std::string(name(to.type)));
  const lane which = lane_of(to.type);
  const std::int64_t item = item_bytes(to.type);
  pass_buffer other, converted;
  for_each_pass(to, from, [&](pass_buffer& lanes, const std::byte* source, std::int64_t stride, std::int64_t count) {
    load_lanes(from.type, source, stride, count, other);
    if (from.type != to.type) {
      store_lanes(to.type, from.type, other, converted.bytes, item, count);
      load_lanes(to.type, converted.bytes, item, count, other);
    }
    combine(which, lanes, other, count, op);
  });
  return {};
}

result<void> fill_identity(const tensor_view& view, reduce_op op) {
  SHARDMESH_TRY(check_op(view.type, op));
  std::byte element[16]{};
  write_identity(view.type, op, element);
  return copy(view, {element, view.type, device{}, view.sizes, extents::filled(view.sizes.rank(), 0)});
}

bool is_scalable(dtype type) {
  const bool floats = kind(type) == dtype_kind::floating || kind(type) == dtype_kind::complex;
  return floats && lane_of(type) != lane::none && bits(type) % 8 == 0;
}

result<void> scale(const tensor_view& view, double factor) {
  return change_view(view, "scale", [factor](double value) { return value * factor; });
}

result<void> divide(const tensor_view& view, double divisor) {
  return change_view(view, "divide", [divisor](double value) { return value / divisor; });
}

}  // namespace shardmesh
