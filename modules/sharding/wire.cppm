// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other about shards, as bytes: small numbers take one byte, and nothing that was received is
// trusted. For this room and those above it, not for users. Not here: tensors' bytes (transfer).
export module shardmesh.sharding:wire;

import shardmesh.std;
import shardmesh.transfer;
import :metadata;

export namespace shardmesh::detail {

class wire_writer {
 public:
  void number(std::int64_t value);  // zigzag, 7 bits a byte
  void flag(bool value) { number(value ? 1 : 0); }
  void text(std::string_view value);
  void numbers(std::span<const std::int64_t> values);
  void properties(const tensor_properties& value);
  void shard(const shard_metadata& value);
  void raw(std::span<const std::byte> value) { bytes_.insert(bytes_.end(), value.begin(), value.end()); }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads what wire_writer wrote. After the first thing that makes no sense every answer is empty and `ok` is false.
class wire_reader {
 public:
  explicit wire_reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::int64_t number();
  bool flag() { return in_range(1) == 1; }
  std::string text();
  extents numbers();
  tensor_properties properties();
  shard_metadata shard();
  // A count of things that take at least a byte each.
  std::size_t count();

  bool ok() const { return ok_; }
  // Everything was read and made sense.
  bool finished() const { return ok_ && at_ == bytes_.size(); }

 private:
  std::int64_t in_range(std::int64_t most);
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace shardmesh::detail
