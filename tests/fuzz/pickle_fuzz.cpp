// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: the parser terminates, its memory is a small multiple of the input, and accepted pickles can be
// written again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
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
  if (!again) std::abort();
  // Bytes that protocols 0 to 2 write as a call are written as bytes.
  const auto was = graph->root(), is = again->root();
  if (is.kind() != was.kind() && (!is.bytes() || shardmesh::pickle::bytes_of(is) != shardmesh::pickle::bytes_of(was)))
    std::abort();
  return 0;
}
