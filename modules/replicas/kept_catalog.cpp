// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.replicas;

import shardmesh.comm;
import shardmesh.digest;
import :described_part;
import :kept_catalog;

namespace shardmesh {

std::vector<numbered_chunk> chunks_of(const kept_catalog& catalog) {
  std::vector<numbered_chunk> all;
  for (const kept_tensor& tensor : catalog.tensors)
    for (const kept_chunk& chunk : tensor.chunks) all.push_back({&tensor, &chunk});
  return all;
}

std::vector<std::byte> encode(const kept_catalog& catalog) {
  detail::wire_writer out;
  out.number(catalog.step);
  out.number(catalog.number);
  out.number(static_cast<std::int64_t>(catalog.tensors.size()));
  for (const kept_tensor& tensor : catalog.tensors) {
    write_head(out, {tensor.key, tensor.is_object, tensor.shape, tensor.type});
    out.number(static_cast<std::int64_t>(tensor.chunks.size()));
    for (const kept_chunk& chunk : tensor.chunks) {
      out.where(chunk.where);
      out.digest(chunk.digest);
    }
  }
  return std::move(out).take();
}

std::optional<kept_catalog> decode_catalog(std::span<const std::byte> bytes) {
  detail::wire_reader in(bytes);
  kept_catalog catalog;
  catalog.step = in.in_range(0, std::numeric_limits<std::int64_t>::max());
  catalog.number = in.in_range(0, std::numeric_limits<std::int64_t>::max());
  const std::size_t tensors = in.count();
  for (std::size_t i = 0; i < tensors && in.ok(); ++i) {
    std::optional<entry_head> head = read_head(in);
    if (!head) return std::nullopt;
    kept_tensor tensor{std::move(head->key), head->is_object, head->shape, head->type, {}};
    const std::size_t chunks = in.count();
    for (std::size_t k = 0; k < chunks && in.ok(); ++k) {
      kept_chunk chunk;
      chunk.where = in.where();
      chunk.digest = in.digest();
      const auto size = part_bytes(tensor.shape, tensor.type, chunk.where);
      if (!in.ok() || !size) return std::nullopt;
      chunk.size_bytes = *size;
      tensor.chunks.push_back(chunk);
    }
    catalog.tensors.push_back(std::move(tensor));
  }
  if (!in.finished()) return std::nullopt;
  return catalog;
}

}  // namespace shardmesh
