// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.sharding;

namespace shardmesh::detail {
namespace {

// The last enumerators, which bound what is read.
constexpr auto last_dtype = static_cast<std::int64_t>(dtype::bits4x2);
constexpr auto last_storage = static_cast<std::int64_t>(tensor_storage::jagged);
constexpr auto last_format = static_cast<std::int64_t>(memory_format::channels_last_3d);
constexpr auto last_device = static_cast<std::int64_t>(device_type::other);

}  // namespace

void wire_writer::number(std::int64_t value) {
  auto rest = static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63);
  for (; rest >= 0x80; rest >>= 7) bytes_.push_back(static_cast<std::byte>(rest | 0x80));
  bytes_.push_back(static_cast<std::byte>(rest));
}

void wire_writer::text(std::string_view value) {
  number(static_cast<std::int64_t>(value.size()));
  const auto* first = reinterpret_cast<const std::byte*>(value.data());
  bytes_.insert(bytes_.end(), first, first + value.size());
}

void wire_writer::numbers(std::span<const std::int64_t> values) {
  number(static_cast<std::int64_t>(values.size()));
  for (const std::int64_t value : values) number(value);
}

void wire_writer::properties(const tensor_properties& value) {
  number(static_cast<std::int64_t>(value.type));
  number(static_cast<std::int64_t>(value.storage));
  flag(value.requires_grad);
  number(static_cast<std::int64_t>(value.format));
  flag(value.pin_memory);
}

void wire_writer::shard(const shard_metadata& value) {
  numbers(value.offsets);
  numbers(value.sizes);
  flag(value.placement.has_value());
  if (!value.placement) return;
  flag(value.placement->rank.has_value());
  if (value.placement->rank) number(*value.placement->rank);
  text(value.placement->worker);
  number(static_cast<std::int64_t>(value.placement->where.type));
  number(value.placement->where.index);
}

std::int64_t wire_reader::number() {
  std::uint64_t made = 0;
  for (int shift = 0; ok_ && shift < 64; shift += 7) {
    if (at_ == bytes_.size()) break;
    const auto next = static_cast<std::uint64_t>(bytes_[at_++]);
    if (shift == 63 && next > 1) break;
    made |= (next & 0x7F) << shift;
    if (next < 0x80) return static_cast<std::int64_t>(made >> 1 ^ (~(made & 1) + 1));
  }
  ok_ = false;
  return 0;
}

std::int64_t wire_reader::in_range(std::int64_t most) {
  const std::int64_t value = number();
  if (value >= 0 && value <= most) return value;
  ok_ = false;
  return 0;
}

std::size_t wire_reader::count() {
  return static_cast<std::size_t>(in_range(static_cast<std::int64_t>(bytes_.size() - at_)));
}

std::string wire_reader::text() {
  const std::size_t length = count();
  if (!ok_ || length > bytes_.size() - at_) return ok_ = false, std::string();
  const auto part = bytes_.subspan(at_, length);
  at_ += length;
  return {reinterpret_cast<const char*>(part.data()), part.size()};
}

extents wire_reader::numbers() {
  extents made;
  const std::int64_t length = in_range(static_cast<std::int64_t>(max_rank));
  for (std::int64_t i = 0; i < length; ++i) made.push_back(number());
  return made;
}

tensor_properties wire_reader::properties() {
  tensor_properties made;
  made.type = static_cast<dtype>(in_range(last_dtype));
  made.storage = static_cast<tensor_storage>(in_range(last_storage));
  made.requires_grad = flag();
  made.format = static_cast<memory_format>(in_range(last_format));
  made.pin_memory = flag();
  return made;
}

shard_metadata wire_reader::shard() {
  shard_metadata made{numbers(), numbers(), std::nullopt};
  if (!flag()) return made;
  remote_device placement;
  if (flag()) placement.rank = static_cast<std::int32_t>(in_range(std::numeric_limits<std::int32_t>::max()));
  placement.worker = text();
  placement.where.type = static_cast<device_type>(in_range(last_device));
  const std::int64_t index = number();
  if (index < -1 || index > std::numeric_limits<std::int16_t>::max()) ok_ = false;
  placement.where.index = static_cast<std::int16_t>(ok_ ? index : -1);
  made.placement = std::move(placement);
  return made;
}

}  // namespace shardmesh::detail
