// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>
module shardmesh.gguf;

import shardmesh.storage;
import :block_decoding;
import :block_source;

namespace shardmesh::gguf {
namespace {

// Elements decoded at a time: they stay in a core's cache until they are copied.
constexpr std::int64_t piece_elements = std::int64_t{1} << 16;

}  // namespace

result<void> block_source::read(std::int64_t offset, std::span<std::byte> out) const {
  if (const auto length = static_cast<std::int64_t>(out.size());
      offset < 0 || length > size_bytes() || offset > size_bytes() - length)
    return fail(errc::out_of_bounds, "reads past the end").with_file(name());
  const block_decoder decode = decoder_of(type_.type);
  const std::int64_t most = piece_elements / type_.block_elements;
  std::vector<std::byte> stored;
  std::vector<float> decoded;
  while (!out.empty()) {
    const std::int64_t first = offset / decoded_bytes(), skipped = offset % decoded_bytes();
    const std::int64_t wanted = skipped + static_cast<std::int64_t>(out.size());
    const std::int64_t blocks = std::min((wanted - 1) / decoded_bytes() + 1, most);
    stored.resize(static_cast<std::size_t>(blocks * type_.block_bytes));
    decoded.resize(static_cast<std::size_t>(blocks * type_.block_elements));
    SHARDMESH_TRY(file_->read(begin_ + first * type_.block_bytes, stored));
    decode(reinterpret_cast<const std::uint8_t*>(stored.data()), blocks, decoded.data());
    const std::int64_t bytes = std::min(blocks * decoded_bytes(), wanted) - skipped;
    std::memcpy(out.data(), reinterpret_cast<const std::byte*>(decoded.data()) + skipped,
                static_cast<std::size_t>(bytes));
    offset += bytes;
    out = out.subspan(static_cast<std::size_t>(bytes));
  }
  return {};
}

}  // namespace shardmesh::gguf
