// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>
module shardmesh.delta;

import shardmesh.core;
import shardmesh.digest;
import :block_codec;
import :block_entry;
import :zstd_frame;

namespace shardmesh::delta {
namespace {

// The head of a sparse block: the number of changed elements, and the bytes of their distances.
constexpr std::size_t sparse_head_bytes = 8;
// A distance is the sum of its bytes; a byte of this value is followed by another one.
constexpr std::size_t longest_step = 255;
// Blocks in which more than one of so many elements has changed are stored dense.
constexpr std::size_t sparse_ratio = 8;
constexpr std::size_t compared_bytes = 64;

// Calls `visit` with the item size as a constant, so that loops over elements are compiled for it.
template <class Visit>
auto with_item_size(std::int64_t item, const Visit& visit) {
  switch (item) {
    case 1:
      return visit(std::integral_constant<std::size_t, 1>{});
    case 2:
      return visit(std::integral_constant<std::size_t, 2>{});
    case 4:
      return visit(std::integral_constant<std::size_t, 4>{});
    case 8:
      return visit(std::integral_constant<std::size_t, 8>{});
    default:
      return visit(std::integral_constant<std::size_t, 16>{});
  }
}

bool differ(const std::byte* a, const std::byte* b) {
  std::array<std::uint64_t, compared_bytes / 8> left{}, right{};
  std::memcpy(left.data(), a, compared_bytes);
  std::memcpy(right.data(), b, compared_bytes);
  std::uint64_t any = 0;
  for (std::size_t i = 0; i < left.size(); ++i) any |= left[i] ^ right[i];
  return any != 0;
}

// Collects the changed elements: their distances, and their XOR values in the order of the elements. Stops after `most`
// of them. Returns their number; nothing if there are more.
template <std::size_t Item>
std::optional<std::size_t> collect_changes(std::span<const std::byte> base, std::span<const std::byte> next,
                                           std::size_t most, std::vector<std::byte>& gaps,
                                           std::vector<std::byte>& values) {
  const std::size_t elements = next.size() / Item;
  constexpr std::size_t step = compared_bytes / Item;
  std::size_t changed = 0, expected = 0;  // `expected`: the element after the last changed one
  const auto compare = [&](std::size_t element) {
    const std::byte* const a = base.data() + element * Item;
    const std::byte* const b = next.data() + element * Item;
    if (std::memcmp(a, b, Item) == 0) return true;
    if (++changed > most) return false;
    std::size_t gap = element - expected;
    for (; gap >= longest_step; gap -= longest_step) gaps.push_back(static_cast<std::byte>(longest_step));
    gaps.push_back(static_cast<std::byte>(gap));
    for (std::size_t i = 0; i < Item; ++i) values.push_back(a[i] ^ b[i]);
    expected = element + 1;
    return true;
  };
  std::size_t at = 0;
  for (; at + step <= elements; at += step) {
    if (!differ(base.data() + at * Item, next.data() + at * Item)) continue;
    for (std::size_t element = at; element < at + step; ++element)
      if (!compare(element)) return std::nullopt;
  }
  for (; at < elements; ++at)
    if (!compare(at)) return std::nullopt;
  return changed;
}

// Writes byte 0 of every element, then byte 1 of every element, and so on. The high bytes of floating numbers are
// alike, so each plane compresses better than the elements do.
template <std::size_t Item>
void split_planes(std::span<const std::byte> elements, std::byte* planes) {
  const std::size_t count = elements.size() / Item;
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t p = 0; p < Item; ++p) planes[p * count + i] = elements[i * Item + p];
}

// The same for the XOR of two blocks.
template <std::size_t Item>
void split_difference(std::span<const std::byte> base, std::span<const std::byte> next, std::byte* planes) {
  const std::size_t count = next.size() / Item;
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t p = 0; p < Item; ++p) planes[p * count + i] = base[i * Item + p] ^ next[i * Item + p];
}

template <std::size_t Item>
void join_planes(std::span<const std::byte> planes, std::span<std::byte> elements) {
  const std::size_t count = elements.size() / Item;
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t p = 0; p < Item; ++p) elements[i * Item + p] = planes[p * count + i];
}

template <std::size_t Item>
void apply_difference(std::span<const std::byte> planes, std::span<std::byte> elements) {
  const std::size_t count = elements.size() / Item;
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t p = 0; p < Item; ++p) elements[i * Item + p] ^= planes[p * count + i];
}

std::uint32_t number_at(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint32_t number = 0;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

// Returns false if the bytes are not those of a sparse block.
template <std::size_t Item>
bool apply_changes(std::span<const std::byte> plain, std::span<std::byte> elements) {
  if (plain.size() < sparse_head_bytes) return false;
  const std::size_t changed = number_at(plain, 0), gap_bytes = number_at(plain, 4);
  const std::size_t rest = plain.size() - sparse_head_bytes;
  if (gap_bytes > rest || rest - gap_bytes != changed * Item) return false;
  const std::span<const std::byte> gaps = plain.subspan(sparse_head_bytes, gap_bytes);
  const std::span<const std::byte> values = plain.subspan(sparse_head_bytes + gap_bytes);
  const std::size_t count = elements.size() / Item;
  std::size_t at = 0, done = 0;
  for (const std::byte gap : gaps) {
    at += std::to_integer<std::size_t>(gap);
    if (std::to_integer<std::size_t>(gap) == longest_step) continue;
    if (at >= count || done == changed) return false;
    for (std::size_t p = 0; p < Item; ++p) elements[at * Item + p] ^= values[p * changed + done];
    ++at;
    ++done;
  }
  return done == changed;
}

void put_number(std::byte* to, std::size_t value) {
  const auto number = static_cast<std::uint32_t>(value);
  std::memcpy(to, &number, sizeof number);
}

error damaged() {
  return fail(errc::bad_format, "the block's changes do not fit its elements");
}

}  // namespace

bool has_block_elements(dtype type) {
  const int size = bits(type);
  return size == 8 || size == 16 || size == 32 || size == 64 || size == 128;
}

std::int64_t most_plain_bytes(block_coding coding, std::int64_t bytes) {
  if (coding == block_coding::same) return 0;
  // Of each element, a distance of one byte, and its value; one more byte of distance for each 255 elements.
  if (coding == block_coding::sparse) return static_cast<std::int64_t>(sparse_head_bytes) + 2 * bytes + bytes / 255;
  return bytes;
}

std::span<const std::byte> block_encoder::plain_of(std::span<const std::byte> base, std::span<const std::byte> next,
                                                   std::int64_t item, block_coding& coding) {
  return with_item_size(item, [&](auto constant) -> std::span<const std::byte> {
    constexpr std::size_t size = decltype(constant)::value;
    if (base.empty()) {
      coding = block_coding::whole;
      plain_.resize(next.size());
      split_planes<size>(next, plain_.data());
      return plain_;
    }
    gaps_.clear();
    values_.clear();
    const auto changed = collect_changes<size>(base, next, next.size() / size / sparse_ratio, gaps_, values_);
    if (!changed) {
      coding = block_coding::dense;
      plain_.resize(next.size());
      split_difference<size>(base, next, plain_.data());
      return plain_;
    }
    coding = block_coding::sparse;
    plain_.resize(sparse_head_bytes + gaps_.size() + values_.size());
    put_number(plain_.data(), *changed);
    put_number(plain_.data() + 4, gaps_.size());
    std::memcpy(plain_.data() + sparse_head_bytes, gaps_.data(), gaps_.size());
    split_planes<size>(values_, plain_.data() + sparse_head_bytes + gaps_.size());
    return plain_;
  });
}

encoded_block block_encoder::encode(std::span<const std::byte> base, std::span<const std::byte> next,
                                    std::int64_t item) {
  encoded_block made;
  made.entry.result = xxh3(next);
  if (!base.empty() && std::memcmp(base.data(), next.data(), next.size()) == 0) {
    made.entry.base = made.entry.result;
    return made;
  }
  if (!base.empty()) made.entry.base = xxh3(base);
  const std::span<const std::byte> plain = plain_of(base, next, item, made.entry.coding);
  const auto frame = compressor_.compress(plain);
  const std::span<const std::byte> stored = frame ? *frame : plain;
  made.stored.assign(stored.begin(), stored.end());
  made.entry.is_compressed = frame.has_value();
  made.entry.stored_bytes = static_cast<std::int64_t>(stored.size());
  made.entry.plain_bytes = static_cast<std::int64_t>(plain.size());
  made.entry.stored = xxh3(stored);
  return made;
}

result<void> block_decoder::decode(const block_entry& entry, std::span<const std::byte> stored, std::int64_t item,
                                   std::span<std::byte> bytes) {
  if (entry.coding == block_coding::same) return {};
  std::span<const std::byte> plain = stored;
  if (entry.is_compressed) {
    const auto length = static_cast<std::size_t>(entry.plain_bytes);
    if (plain_.size() < length) plain_.resize(length);
    const std::span<std::byte> out = std::span(plain_).first(length);
    SHARDMESH_TRY(decompressor_.decompress(stored, out));
    plain = out;
  }
  if (entry.coding != block_coding::sparse && plain.size() != bytes.size()) return damaged();
  const bool fits = with_item_size(item, [&](auto constant) {
    constexpr std::size_t size = decltype(constant)::value;
    if (entry.coding == block_coding::sparse) return apply_changes<size>(plain, bytes);
    if (entry.coding == block_coding::dense)
      apply_difference<size>(plain, bytes);
    else
      join_planes<size>(plain, bytes);
    return true;
  });
  return fits ? result<void>{} : damaged();
}

}  // namespace shardmesh::delta
