// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.reference_kernels: defines each kernel by loops over elements, as the oracle that every backend is
// compared with. It calls no kernel, uses no intrinsics, and ignores speed. Tests only.
//
// All dtypes go through one type, `number`. A long double has 64 bits of significand and 15 of exponent, so it holds
// every value of every dtype. A conversion rounds once, from the exact value to the nearest, ties to even. Floats
// smaller than 32 bits go through float32, as in PyTorch; these two roundings are part of the definition. The bits of a
// NaN are unspecified: `same` treats all NaNs as equal, and tests/unit/kernels/casts_test.cpp has PyTorch's. Converting
// a float that does not fit into an integer follows one rule of ours in every backend, because PyTorch gives several
// answers.
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

/// Whether elements of the dtype have convertible values and whole bytes.
bool has_values(shardmesh::dtype type);
/// Whether the integer type can hold the element.
bool is_specified(shardmesh::dtype from, const std::byte* element, shardmesh::dtype to);
/// Whether the bytes are equal, or the same parts are NaN.
bool same(shardmesh::dtype type, const std::byte* a, const std::byte* b);

// Like the kernels of these names. The caller must not pass arguments that they refuse.
void copy(const shardmesh::tensor_view& to, const shardmesh::const_tensor_view& from);
void accumulate(const shardmesh::tensor_view& to, const shardmesh::const_tensor_view& from, shardmesh::reduce_op op);
void fill_identity(const shardmesh::tensor_view& view, shardmesh::reduce_op op);
void scale(const shardmesh::tensor_view& view, double factor);
void divide(const shardmesh::tensor_view& view, double divisor);
void byte_swap(const shardmesh::tensor_view& view);
void conjugate(const shardmesh::tensor_view& view);
void negate(const shardmesh::tensor_view& view);

/// The number of elements that differ in value (NaN equals NaN, -0 equals 0, bits compare as bits), and the first one.
struct differences {
  std::int64_t different = 0;
  shardmesh::extents first_index;
};
differences compare(const shardmesh::const_tensor_view& a, const shardmesh::const_tensor_view& b);

}  // namespace reference
