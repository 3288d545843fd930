// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>
module shardmesh.storage;

import :block_folder;
import :cached_object;

namespace shardmesh {
namespace {

constexpr std::int64_t block_bytes = 1 << 20;
constexpr std::size_t most_blocks = 128;     // at a time
constexpr std::size_t most_own_blocks = 32;  // of these, in memory of their own

// Ranges that continue each other in the object and in memory become one: a large read stays few requests.
void add_range(std::vector<source_range>& to, const source_range& next) {
  if (!to.empty()) {
    source_range& last = to.back();
    const bool continues =
        last.offset + std::ssize(last.out) == next.offset && last.out.data() + last.out.size() == next.out.data();
    if (continues) {
      last.out = {last.out.data(), last.out.size() + next.out.size()};
      return;
    }
  }
  to.push_back(next);
}

}  // namespace

block_key cached_object::key_of(std::int64_t number) const {
  return {identity_, number, std::min(block_bytes, size_bytes() - number * block_bytes)};
}

result<void> cached_object::read(std::int64_t offset, std::span<std::byte> out) const {
  const source_range one{offset, out};
  return read_ranges({&one, 1});
}

result<void> cached_object::read_ranges(std::span<const source_range> ranges) const {
  wanted_blocks wanted;
  std::size_t own_blocks = 0;
  for (source_range range : ranges)
    while (!range.out.empty()) {
      const std::int64_t number = range.offset / block_bytes, in_block = range.offset % block_bytes;
      const auto whole = static_cast<std::size_t>(key_of(number).length);
      const std::size_t length = std::min(range.out.size(), whole - static_cast<std::size_t>(in_block));
      const auto known = wanted.find(number);
      // A second part of a block that is read straight into memory would need memory for the block.
      const bool must_fill = known == wanted.end()
                                 ? wanted.size() == most_blocks || own_blocks == most_own_blocks
                                 : known->second.parts.size() == 1 && known->second.parts.front().out.size() == whole;
      if (must_fill) {
        SHARDMESH_TRY(fill(wanted));
        own_blocks = 0;
      }
      wanted_block& block = wanted[number];
      if (block.parts.empty() && length < whole) ++own_blocks;
      block.parts.push_back({in_block, range.out.first(length)});
      range = {range.offset + static_cast<std::int64_t>(length), range.out.subspan(length)};
    }
  return fill(wanted);
}

// Fills the parts of all blocks, and empties the list.
result<void> cached_object::fill(wanted_blocks& wanted) const {
  const bool keeps = folder_->is_writing();
  std::vector<source_range> missing;
  std::vector<std::int64_t> missing_numbers;
  for (auto& [number, block] : wanted) {
    const block_key key = key_of(number);
    const auto length = static_cast<std::size_t>(key.length);
    if (block.parts.size() == 1 && block.parts.front().out.size() == length) {
      block.bytes = block.parts.front().out;
    } else {
      block.own_bytes = std::make_unique_for_overwrite<std::byte[]>(length);
      block.bytes = {block.own_bytes.get(), length};
    }
    if (folder_->read(key, block.bytes)) continue;
    if (keeps) {
      add_range(missing, {number * block_bytes, block.bytes});
      missing_numbers.push_back(number);
      continue;
    }
    // The rest of the block would be read for nothing.
    block.own_bytes.reset();
    for (const source_range& part : block.parts) add_range(missing, {number * block_bytes + part.offset, part.out});
  }
  if (!missing.empty()) SHARDMESH_TRY(object_->read_ranges(missing));
  for (const std::int64_t number : missing_numbers) folder_->write(key_of(number), wanted.at(number).bytes);
  for (const auto& [number, block] : wanted) {
    if (!block.own_bytes) continue;
    for (const source_range& part : block.parts)
      std::copy_n(block.bytes.begin() + part.offset, part.out.size(), part.out.begin());
  }
  wanted.clear();
  return {};
}

}  // namespace shardmesh
