// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: opens or refuses any bytes as an item. Its objects print as JSON within the limits; both rules
// flatten it.
#include <cstddef>
#include <cstdint>
#include <span>

import shardmesh.checkpoint;
import shardmesh.storage;
import shardmesh.torch_file;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardmesh;
  const memory_source source(std::as_bytes(std::span(data, size)), "fuzz");
  const auto item = torch_file::item::open(source);
  if (!item) return 0;
  static_cast<void>(object_json(source, *item, item->root(), {.limit_bytes = 1 << 16, .tensor_limit_bytes = 1 << 20}));
  for (const key_policy policy : {key_policy::torch_dcp, key_policy::torch_dcp_2_3})
    static_cast<void>(flatten_state_dict(*item, item->root(), {.policy = policy, .max_entries = 10000}));
  for (std::size_t i = 0; i < item->tensors().size(); ++i)
    static_cast<void>(read_tensor(source, *item, i, 1 << 20, false));
  return 0;
}
