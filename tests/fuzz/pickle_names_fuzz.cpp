// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes are looked through for names. What the strict parser accepts, the forgiving one reads to
// the same end; names are short whatever the input says.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

import shardmesh.checkpoint;
import shardmesh.pickle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardmesh;
  const auto bytes = std::as_bytes(std::span(data, size));
  const pickle::used_names found = pickle::names_in(bytes);
  for (const pickle::used_name& name : found.names)
    if (name.text.empty() || name.text.size() > 1000 || name.count < 1) std::abort();
  const auto graph = pickle::graph::parse(bytes);
  if (graph && graph->consumed_bytes() == size)
    for (const pickle::used_name& name : found.names)
      if (name.text.starts_with("<unreadable")) std::abort();
  return 0;
}
