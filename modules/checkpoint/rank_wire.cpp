// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :rank_wire;

namespace shardmesh {

void rank_writer::number(std::int64_t value) {
  auto zigzag = (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
  for (; zigzag >= 0x80; zigzag >>= 7) out_.push_back(static_cast<std::byte>(0x80 | (zigzag & 0x7f)));
  out_.push_back(static_cast<std::byte>(zigzag));
}

void rank_writer::bytes(std::span<const std::byte> value) {
  number(static_cast<std::int64_t>(value.size()));
  out_.insert(out_.end(), value.begin(), value.end());
}

void rank_writer::numbers(const extents& values) {
  number(static_cast<std::int64_t>(values.size()));
  for (const std::int64_t value : values) number(value);
}

void rank_writer::digest(const digest128& value) {
  for (std::uint64_t half : {value.low, value.high})
    for (int i = 0; i < 8; ++i, half >>= 8) out_.push_back(static_cast<std::byte>(half & 0xff));
}

void rank_writer::where(const path& value) {
  number(static_cast<std::int64_t>(value.size()));
  for (const path_key& key : value) {
    number(key.is_index() ? 0 : 1);
    if (key.is_index())
      number(key.index());
    else
      text(key.name());
  }
}

std::int64_t rank_reader::number() {
  std::uint64_t zigzag = 0;
  for (int shift = 0; ok_ && shift < 64; shift += 7) {
    if (left_.empty()) break;
    const auto byte = static_cast<std::uint64_t>(left_.front());
    left_ = left_.subspan(1);
    if (shift == 63 && byte > 1) break;
    zigzag |= (byte & 0x7f) << shift;
    if (byte < 0x80) return static_cast<std::int64_t>(zigzag >> 1) ^ -static_cast<std::int64_t>(zigzag & 1);
  }
  ok_ = false;
  return 0;
}

std::int64_t rank_reader::in_range(std::int64_t most) {
  const std::int64_t value = number();
  if (value >= 0 && value <= most) return value;
  ok_ = false;
  return 0;
}

std::size_t rank_reader::count() {
  return static_cast<std::size_t>(in_range(static_cast<std::int64_t>(left_.size())));
}

std::vector<std::byte> rank_reader::bytes() {
  const std::size_t size = count();
  if (!ok_ || size > left_.size()) return ok_ = false, std::vector<std::byte>();
  std::vector<std::byte> value(left_.begin(), left_.begin() + static_cast<std::ptrdiff_t>(size));
  left_ = left_.subspan(size);
  return value;
}

std::string rank_reader::text() {
  const std::vector<std::byte> value = bytes();
  return {reinterpret_cast<const char*>(value.data()), value.size()};
}

extents rank_reader::numbers() {
  extents values;
  const std::int64_t size = in_range(static_cast<std::int64_t>(max_rank));
  for (std::int64_t i = 0; i < size && ok_; ++i) values.push_back(number());
  return ok_ ? values : extents();
}

digest128 rank_reader::digest() {
  if (left_.size() < 16) return ok_ = false, digest128();
  std::uint64_t halves[2] = {};
  for (std::size_t i = 0; i < 16; ++i) halves[i / 8] |= static_cast<std::uint64_t>(left_[i]) << (8 * (i % 8));
  left_ = left_.subspan(16);
  return {halves[0], halves[1]};
}

path rank_reader::where() {
  path made;
  const std::size_t keys = count();
  for (std::size_t i = 0; i < keys && ok_; ++i) {
    if (in_range(1) == 0)
      made.push_back(number());
    else
      made.push_back(text());
  }
  return ok_ ? made : path();
}

}  // namespace shardmesh
