// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: decodes any bytes as a compressed stream. An accepted stream has the size that it claims, yields
// the same bytes in any order of reading, and never decodes to more than its budget.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

import shardmesh.checkpoint;
import shardmesh.storage;

namespace {

void look_at(std::span<const std::byte> bytes, shardmesh::codec how) {
  using namespace shardmesh;
  read_budget budget({.decoded_bytes = 1 << 20});
  auto opened = open_decoding_source(std::make_unique<memory_source>(bytes, "fuzz"), how, &budget, "fuzz");
  if (!opened) return;
  const std::int64_t length = (*opened)->size_bytes();
  if (length > (1 << 20) + 16 * static_cast<std::int64_t>(bytes.size())) std::abort();
  std::vector<std::byte> whole(static_cast<std::size_t>(length)), again(whole.size());
  if (!(*opened)->read(0, whole)) std::abort();
  const std::size_t half = whole.size() / 2;
  if (!(*opened)->read(static_cast<std::int64_t>(half), std::span(again).subspan(half))) std::abort();
  if (!(*opened)->read(0, std::span(again).first(half)) || again != whole) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const shardmesh::codec how : {shardmesh::codec::zstd, shardmesh::codec::deflate, shardmesh::codec::gzip})
    look_at(std::as_bytes(std::span(data, size)), how);
  return 0;
}
