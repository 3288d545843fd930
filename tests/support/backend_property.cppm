// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.backend_property: random batches run by a backend and, item by item, by the reference. Whoever writes
// a backend calls these. Tests only.
module;
#include <cstdint>
#include <string>
export module shardmesh.test.backend_property;

import shardmesh.kernels;

export namespace backend_property {

/// One random batch: up to forty items of every operation and dtype in several phases, over strided, broadcast, turned,
/// misaligned, empty and 0-d views, run twice (as cached batches are) on memory of `where`. "" where every byte of
/// every slot is as the reference leaves it (any NaN is a NaN), else what differs first.
std::string difference(shardmesh::kernel_backend& backend, shardmesh::device where, std::uint64_t seed);

/// The same with few items of megabytes: many tiles, stores past the cache, transposes beyond their squares.
std::string difference_when_large(shardmesh::kernel_backend& backend, shardmesh::device where, std::uint64_t seed);

/// Every bit pattern of the 8-bit floats to what they are made from (float32, bfloat16, float16), and patterns of those
/// on both sides of every rounding to the 8-bit floats. "" or what differs from the reference first.
std::string difference_in_float8_casts(shardmesh::kernel_backend& backend, shardmesh::device where);

/// What is wrong with the errors of a backend for items that it cannot run; "" when nothing is.
std::string wrong_refusals(shardmesh::kernel_backend& backend, shardmesh::device where);

}  // namespace backend_property
