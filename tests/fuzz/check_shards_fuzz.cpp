// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: reads any bytes as the JSON of `shardmesh check-shards`.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "shard_list.hpp"
import shardmesh;
import shardmesh.layout;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto list = tool::parse_shard_list({reinterpret_cast<const char*>(data), size}, "shards.json");
  if (list.problem_count == 0)
    static_cast<void>(shardmesh::check_boxes(list.shape, list.offsets, list.sizes, list.owners, 100,
                                             shardmesh::owner_space::ranks, shardmesh::equal_boxes::overlap));
  return 0;
}
