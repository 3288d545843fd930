// SPDX-License-Identifier: Apache-2.0
// The `data.pkl` of a tensor, opcode by opcode as Python writes it.
module;
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "put_bytes.hpp"
module shardmesh.torch_file;

namespace shardmesh::torch_file {
namespace {

using put_bytes::buffer;
using put_bytes::put;

/// Emits protocol 2 as Python's pickler does. Every string, global, and non-empty tuple goes into the memo, and so does
/// the result of each call of a function, which the caller memoizes.
class protocol2 {
 public:
  protocol2() {
    out.reserve(512);
    put(out, std::int64_t{0x80}, 1), put(out, std::int64_t{2}, 1);
  }
  void memoize() {
    put(out, "q");
    put(out, std::int64_t{memo++}, 1);
  }
  void text(std::string_view value) {
    put(out, "X");
    put(out, static_cast<std::int64_t>(value.size()), 4);
    put(out, value);
    memoize();
  }
  void global(std::string_view module_name, std::string_view attribute) {
    put(out, "c");
    put(out, module_name), put(out, "\n");
    put(out, attribute), put(out, "\n");
    memoize();
  }
  void integer(std::int64_t value) {
    if (value <= 0xff) return put(out, "K"), put(out, value, 1);
    if (value <= 0xffff) return put(out, "M"), put(out, value, 2);
    if (value <= 0x7fffffff) return put(out, "J"), put(out, value, 4);
    int width = 5;
    while (width < 8 && value >> (8 * width - 1) != 0) ++width;
    put(out, std::int64_t{0x8a}, 1), put(out, std::int64_t{width}, 1), put(out, value, width);
  }
  void integers(const extents& values) {
    if (values.rank() == 0) return put(out, ")");
    if (values.rank() > 3) put(out, "(");
    for (const std::int64_t value : values) integer(value);
    if (values.rank() > 3)
      put(out, "t");
    else
      put(out, static_cast<std::int64_t>(0x84 + values.rank()), 1);
    memoize();
  }
  buffer out;

 private:
  std::int64_t memo = 0;
};

/// Whether PyTorch saves this dtype as untyped bytes, with the dtype beside them. Source: torch.storage._new_dtypes
bool is_saved_untyped(dtype type) {
  switch (type) {
    case dtype::uint16:
    case dtype::uint32:
    case dtype::uint64:
    case dtype::complex32:
    case dtype::float8_e4m3fn:
    case dtype::float8_e5m2:
    case dtype::float8_e4m3fnuz:
    case dtype::float8_e5m2fnuz:
    case dtype::float8_e8m0fnu:
    case dtype::float4_e2m1fn_x2:
    case dtype::bits8:
    case dtype::bits16:
    case dtype::bits1x8:
    case dtype::bits2x4:
    case dtype::bits4x2:
      return true;
    default:
      return false;
  }
}

}  // namespace

result<std::vector<std::byte>> tensor_pickle(dtype type, const extents& sizes) {
  const bool untyped = is_saved_untyped(type);
  const auto class_name = storage_class(type);
  if (!untyped && !class_name)
    return fail(errc::unsupported, fmt::format("PyTorch cannot save tensors of dtype {}", name(type)));
  const auto count = checked_volume(sizes);
  const auto bytes = count ? size_bytes(type, *count) : std::nullopt;
  if (!bytes) return fail(errc::overflow, "the tensor's size does not fit in 64 bits: " + to_string(sizes));

  protocol2 p;
  p.global("torch._utils", untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  put(p.out, "((");
  p.text("storage");
  untyped ? p.global("torch.storage", "UntypedStorage") : p.global("torch", *class_name);
  p.text("0");
  p.text("cpu");
  p.integer(untyped ? *bytes : *count);
  put(p.out, "t");
  p.memoize();
  put(p.out, "Q");
  p.integer(0);  // storage offset
  p.integers(sizes);
  p.integers(contiguous_strides(sizes));
  put(p.out, std::int64_t{0x89}, 1);  // requires_grad
  p.global("collections", "OrderedDict");
  put(p.out, ")R");
  p.memoize();
  if (untyped) p.global("torch", name(type));
  put(p.out, "t");
  p.memoize();
  put(p.out, "R");
  p.memoize();
  put(p.out, ".");
  return p.out;
}

}  // namespace shardmesh::torch_file
