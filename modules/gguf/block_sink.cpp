// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.gguf;

import shardmesh.torch_file;
import :block_sink;

namespace shardmesh::gguf {
namespace {

// Elements quantized at a time; a multiple of every block.
constexpr std::int64_t piece_elements = std::int64_t{1} << 15;

}  // namespace

block_sink::block_sink(torch_file::item_writer& writer, const file_plan& plan, std::span<const std::string> keys)
    : writer_(writer), plan_(plan), keys_(keys), progress_(plan.tensors.size()) {}

result<void> block_sink::write(item_id item, std::int64_t first_byte, std::span<const std::byte> bytes) {
  const auto i = static_cast<std::size_t>(item.slot);
  const planned_tensor& tensor = plan_.tensors[i];
  if (!tensor.is_quantized()) return writer_.write(item, first_byte, bytes);
  progress& state = progress_[i];
  const type_traits& type = *tensor.type;
  const std::int64_t blocks = tensor.length / type.block_bytes;
  state.pending.resize(static_cast<std::size_t>(std::min(piece_elements, blocks * type.block_elements)));
  const std::size_t capacity = state.pending.size() * sizeof(float);
  while (!bytes.empty()) {
    const std::size_t part = std::min(capacity - state.pending_bytes, bytes.size());
    std::memcpy(reinterpret_cast<std::byte*>(state.pending.data()) + state.pending_bytes, bytes.data(), part);
    state.pending_bytes += part;
    bytes = bytes.subspan(part);
    const auto left =
        static_cast<std::size_t>((tensor.length - state.written) / type.block_bytes * type.block_elements) *
        sizeof(float);
    if (state.pending_bytes < std::min(capacity, left)) break;  // the piece is not complete, and not the last
    SHARDMESH_TRY(write_blocks(item, type, state, std::span(state.pending).first(state.pending_bytes / sizeof(float))));
    state.pending_bytes = 0;
  }
  if (state.written == tensor.length) state = {.pending = {}, .pending_bytes = 0, .written = tensor.length};
  return {};
}

result<void> block_sink::write_blocks(item_id item, const type_traits& type, progress& state,
                                      std::span<const float> values) {
  const block_encoder encode = encoder_of(type.type);
  const std::int64_t blocks = static_cast<std::int64_t>(values.size()) / type.block_elements;
  std::vector<std::byte> encoded(static_cast<std::size_t>(blocks * type.block_bytes));
  for (std::int64_t b = 0; b < blocks; ++b) {
    if (encode(values.data() + b * type.block_elements,
               reinterpret_cast<std::uint8_t*>(encoded.data()) + b * type.block_bytes))
      continue;
    const std::int64_t first = (state.written / type.block_bytes + b) * type.block_elements;
    return fail(errc::unsupported, fmt::format("a block of {} cannot hold its values", type.name))
        .with_key(keys_[static_cast<std::size_t>(item.slot)])
        .with_values("finite values, with a scale within float16",
                     fmt::format("others in elements {} to {}", first, first + type.block_elements - 1));
  }
  SHARDMESH_TRY(writer_.write(item, state.written, encoded));
  state.written += static_cast<std::int64_t>(encoded.size());
  return {};
}

}  // namespace shardmesh::gguf
