// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.backend_property: runs random batches with a backend and compares them, item by item, with the
// reference. Tests of a new backend call these functions. Tests only.
module;
#include <cstdint>
#include <string>
export module shardmesh.test.backend_property;

import shardmesh.kernels;

export namespace backend_property {

/// Compares one random batch: up to forty items of every operation and dtype in several phases, over strided,
/// broadcast, transposed, misaligned, empty, and 0-d views. It runs twice, as cached batches do, on memory of `where`.
/// Returns the first difference from the reference in any byte of any slot, or "". All NaNs count as equal.
std::string difference(shardmesh::kernel_backend& backend, shardmesh::device where, std::uint64_t seed);

/// Like `difference`, with a few items of megabytes: many tiles, non-temporal stores, and transposes larger than a
/// square.
std::string difference_when_large(shardmesh::kernel_backend& backend, shardmesh::device where, std::uint64_t seed);

/// Compares float8 casts: every bit pattern of the 8-bit floats to float32, bfloat16, and float16, and patterns of
/// these three on both sides of every rounding boundary. Returns the first difference from the reference, or "".
std::string difference_in_float8_casts(shardmesh::kernel_backend& backend, shardmesh::device where);

/// Checks a backend's errors for items that it cannot run. Returns the first wrong error, or "".
std::string wrong_refusals(shardmesh::kernel_backend& backend, shardmesh::device where);

}  // namespace backend_property
