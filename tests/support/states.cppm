// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.states: state dicts of array_tensor from golden JSON (tagged as in tests/data/golden/README.md), and
// back to JSON for comparison with PyTorch's. Tests only.
module;
#include <array_tensor.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

export module shardmesh.test.states;

import shardmesh.state;

export namespace states {

using dict = shardmesh::state_dict<test::array_tensor>;
using value = shardmesh::state_value<test::array_tensor>;
using sharded = shardmesh::sharded_tensor<test::array_tensor>;

shardmesh::path path_of(const nlohmann::json& keys);

/// The value of an object's only tag, as in {"$tuple": value}; null if it has none.
const nlohmann::json* tagged(const nlohmann::json& j, const char* tag);

/// The entries of a mapping, ordered or not; null if it is not a mapping.
const nlohmann::json* mapping_of(const nlohmann::json& j);

/// The child at a key, in PyTorch's terms, or null.
const nlohmann::json* child_of(const nlohmann::json& j, const nlohmann::json& key);

shardmesh::shard_metadata shard_of(const nlohmann::json& j);

/// The row-major index, in a tensor of sizes `whole`, of each element of a box: the values of a test tensor.
std::vector<std::int64_t> cells_of(const shardmesh::box& b, const shardmesh::extents& whole);

/// One rank of a golden case.
struct reader {
  std::int32_t rank = 0;
  bool requires_grad = false;  // the files do not store it for tensors

  shardmesh::result<dict> read(const nlohmann::json& j) const;
  shardmesh::result<value> leaf(const nlohmann::json& j) const;

 private:
  test::array_tensor tensor(const nlohmann::json& t) const;
  /// A tensor that holds the indices `cells` plus a number. The file may have only a digest of the values; the number
  /// is found by it.
  test::array_tensor tensor(const nlohmann::json& t, const std::vector<std::int64_t>& cells) const;
  shardmesh::result<sharded> sharded_tensor_of(const nlohmann::json& st, const shardmesh::extents& whole,
                                               const shardmesh::extents& origin) const;
  shardmesh::result<void> add(shardmesh::state_dict_builder<test::array_tensor>& b, const nlohmann::json& j,
                              const shardmesh::path_key& key) const;
};

/// A state dict in the golden file's form, values and all.
nlohmann::json dict_json(const dict& d);

/// The golden file's form without mapping classes, which a state dict does not have.
nlohmann::json normal(const nlohmann::json& j);

}  // namespace states
