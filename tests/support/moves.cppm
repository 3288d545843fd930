// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.moves: checks gathers and reshards with a whole tensor in plain bytes, cuts of it, and runs on all
// ranks. Tests only.
module;
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

export module shardmesh.test.moves;

import shardmesh.sharding;

export namespace moves {

/// A whole tensor in plain row-major bytes, which every part is compared with.
struct whole_tensor {
  shardmesh::extents size;
  shardmesh::dtype type;
  std::vector<std::byte> bytes;

  static whole_tensor random(std::mt19937_64& source, const shardmesh::extents& size, shardmesh::dtype type);

  std::size_t item() const;
  /// The bytes of a box, row-major.
  std::vector<std::byte> part(const shardmesh::box& b) const;
  shardmesh::host_tensor tensor(const shardmesh::box& b) const;
  shardmesh::host_tensor tensor() const;
  bool holds(const shardmesh::host_tensor& found, const shardmesh::box& b) const;
  /// Whether every local shard holds the bytes of its box.
  bool holds(const shardmesh::sharded_tensor<shardmesh::host_tensor>& found) const;
};

/// This rank's part of a tensor with these shards.
shardmesh::sharded_tensor<shardmesh::host_tensor> cut(const whole_tensor& whole,
                                                      const std::vector<shardmesh::shard_metadata>& shards,
                                                      const shardmesh::rank_group& group, std::int32_t rank);

/// The error of a rank with wrong values.
shardmesh::result<void> failed(const std::string& what);

using rank_body = shardmesh::function_ref<shardmesh::result<void>(shardmesh::any_communicator&)>;

/// Runs the body on all ranks; the first error fails the test.
void on_all(std::int32_t ranks, rank_body body);

/// The one error that `body` returns on all ranks; afterwards the communicator must still work.
std::string error_on_all(std::int32_t ranks, rank_body body);

}  // namespace moves
