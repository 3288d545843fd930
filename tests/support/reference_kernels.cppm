// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.reference_kernels: what each kernel means, written as loops over elements: the oracle with which every
// backend is compared. It calls no kernel, knows no intrinsics and keeps no eye on speed. Tests only.
//
// All dtypes go through one type, `number`. What is exact: a long double has 64 bits of significand and 15 of exponent,
// so it holds every value of every dtype, and a conversion rounds once, from the exact value to the nearest, ties to
// even. Floats smaller than 32 bits are reached through float32, as in PyTorch: that is two roundings, and part of the
// definition. What is not said here: the bits of a NaN (`same` takes all for one; tests/unit/kernels/casts_test.cpp has
// PyTorch's). What becomes of a float that an integer cannot hold is not PyTorch's, which gives several answers, but
// one of ours, in every backend.
module;
#include <cstddef>
#include <cstdint>
#include <limits>
export module shardmesh.test.reference_kernels;

import shardmesh.core;

static_assert(std::numeric_limits<long double>::digits >= 64, "int64 and uint64 are to fit");

export namespace reference {

/// The value of one element.
struct number {
  long double real = 0, imaginary = 0;
};
number load(shardmesh::dtype type, const std::byte* element);
void store(shardmesh::dtype type, const number& value, std::byte* element);

/// Whether the dtype has values at all, of whole bytes: those that convert to each other.
bool has_values(shardmesh::dtype type);
/// Whether the integer can hold the element.
bool is_specified(shardmesh::dtype from, const std::byte* element, shardmesh::dtype to);
/// Equal bytes, or NaN in the same parts.
bool same(shardmesh::dtype type, const std::byte* a, const std::byte* b);

// As the kernels of these names; what they refuse must not be asked for.
void copy(const shardmesh::tensor_view& to, const shardmesh::const_tensor_view& from);
void accumulate(const shardmesh::tensor_view& to, const shardmesh::const_tensor_view& from, shardmesh::reduce_op op);
void fill_identity(const shardmesh::tensor_view& view, shardmesh::reduce_op op);
void scale(const shardmesh::tensor_view& view, double factor);
void divide(const shardmesh::tensor_view& view, double divisor);
void byte_swap(const shardmesh::tensor_view& view);
void conjugate(const shardmesh::tensor_view& view);
void negate(const shardmesh::tensor_view& view);

/// How many elements differ in value (NaN is NaN, -0 is 0, bits are bits), and which is the first.
struct differences {
  std::int64_t different = 0;
  shardmesh::extents first_index;
};
differences compare(const shardmesh::const_tensor_view& a, const shardmesh::const_tensor_view& b);

}  // namespace reference
