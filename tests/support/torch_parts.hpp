// SPDX-License-Identifier: Apache-2.0
// A layout rank's part of an at::Tensor, as LibTorch slices it, and bitwise comparison of tensors. It uses no type of
// shardmesh's modules: include before imports.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <cstring>

namespace torch_parts {

template <class Extents>
at::Tensor narrowed(at::Tensor part, const Extents& first, const Extents& sizes) {
  for (std::size_t d = 0; d < sizes.size(); ++d) part = part.narrow(static_cast<std::int64_t>(d), first[d], sizes[d]);
  return part;
}

/// A new tensor of the rank's local shape, from any number of boxes. `Layout` is shardmesh's.
template <class Layout>
at::Tensor part_of(const at::Tensor& whole, const Layout& laid, std::int32_t rank) {
  const auto local = laid.local_shape(rank);
  at::Tensor part = at::zeros(at::IntArrayRef(local.begin(), local.end()), whole.options());
  for (const auto& one : laid.boxes(rank))
    narrowed(part, one.local_offsets, one.where.sizes).copy_(narrowed(whole, one.where.offsets, one.where.sizes));
  return part;
}

/// Whether dtypes, sizes, and bytes are equal: NaNs keep their bits.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         std::memcmp(a.contiguous().const_data_ptr(), b.contiguous().const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace torch_parts
