// SPDX-License-Identifier: Apache-2.0
// Any bytes: the parser ends, its memory is a small multiple of the input, and what it accepts survives being written.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <utility>

import shardmesh.checkpoint;
import shardmesh.pickle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto graph = shardmesh::pickle::graph::parse(bytes);
  if (!graph) return 0;
  if (graph->memory_bytes() > 150 * size + 8192) std::abort();
  shardmesh::pickle::writer writer;
  if (!writer.value(graph->root(), 1 << 20)) return 0;
  const auto again = shardmesh::pickle::graph::parse(std::move(writer).finish());
  if (!again || again->root().kind() != graph->root().kind()) std::abort();
  return 0;
}
