// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>
module shardmesh.comm;

namespace shardmesh::detail {

void wire_writer::number(std::int64_t value) {
  auto rest = static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63);
  for (; rest >= 0x80; rest >>= 7) bytes_.push_back(static_cast<std::byte>(rest | 0x80));
  bytes_.push_back(static_cast<std::byte>(rest));
}

void wire_writer::numbers(std::span<const std::int64_t> values) {
  number(static_cast<std::int64_t>(values.size()));
  for (const std::int64_t value : values) number(value);
}

void wire_writer::where(const box& value) {
  numbers(value.offsets);
  numbers(value.sizes);
}

void wire_writer::bytes(std::span<const std::byte> value) {
  number(static_cast<std::int64_t>(value.size()));
  raw(value);
}

void wire_writer::digest(const digest128& value) {
  for (std::uint64_t half : {value.low, value.high})
    for (int i = 0; i < 8; ++i, half >>= 8) bytes_.push_back(static_cast<std::byte>(half & 0xff));
}

void wire_writer::raw(std::span<const std::byte> value) {
  bytes_.insert(bytes_.end(), value.begin(), value.end());
}

std::int64_t wire_reader::number() {
  std::uint64_t made = 0;
  for (int shift = 0; ok_ && shift < 64; shift += 7) {
    if (left_.empty()) break;
    const auto next = static_cast<std::uint64_t>(left_.front());
    left_ = left_.subspan(1);
    if (shift == 63 && next > 1) break;
    made |= (next & 0x7F) << shift;
    if (next < 0x80) return static_cast<std::int64_t>(made >> 1 ^ (~(made & 1) + 1));
  }
  ok_ = false;
  return 0;
}

std::int64_t wire_reader::in_range(std::int64_t least, std::int64_t most) {
  const std::int64_t value = number();
  if (ok_ && value >= least && value <= most) return value;
  ok_ = false;
  return 0;
}

std::size_t wire_reader::count() {
  return static_cast<std::size_t>(in_range(0, static_cast<std::int64_t>(left_.size())));
}

std::span<const std::byte> wire_reader::take(std::size_t size) {
  if (!ok_ || size > left_.size()) return ok_ = false, std::span<const std::byte>();
  const auto taken = left_.first(size);
  left_ = left_.subspan(size);
  return taken;
}

extents wire_reader::numbers() {
  extents made;
  const std::int64_t length = in_range(0, static_cast<std::int64_t>(max_rank));
  for (std::int64_t i = 0; i < length && ok_; ++i) made.push_back(number());
  return ok_ ? made : extents();
}

box wire_reader::where() {
  const extents offsets = numbers();
  return {offsets, numbers()};
}

std::string wire_reader::text() {
  const auto taken = take(count());
  return {reinterpret_cast<const char*>(taken.data()), taken.size()};
}

std::vector<std::byte> wire_reader::bytes() {
  const auto taken = take(count());
  return {taken.begin(), taken.end()};
}

digest128 wire_reader::digest() {
  std::uint64_t halves[2] = {};
  const auto taken = take(16);
  for (std::size_t i = 0; i < taken.size(); ++i) halves[i / 8] |= static_cast<std::uint64_t>(taken[i]) << (8 * (i % 8));
  return {halves[0], halves[1]};
}

}  // namespace shardmesh::detail
