// SPDX-License-Identifier: Apache-2.0
// Not exported: what ranks tell each other while they save and load, as bytes: small numbers take one byte, and nothing
// that was received is trusted. Not here: what it means (rank_state).
module shardmesh.checkpoint:rank_wire;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.tree;

namespace shardmesh {

class rank_writer {
 public:
  void number(std::int64_t value);  // zigzag, 7 bits a byte
  void bytes(std::span<const std::byte> value);
  void text(std::string_view value) { bytes(std::as_bytes(std::span(value))); }
  void numbers(const extents& values);
  void digest(const digest128& value);
  void where(const path& value);
  std::vector<std::byte> take() && { return std::move(out_); }

 private:
  std::vector<std::byte> out_;
};

// Reads what rank_writer wrote. After the first thing that makes no sense every answer is empty and `ok` is false.
class rank_reader {
 public:
  explicit rank_reader(std::span<const std::byte> bytes) : left_(bytes) {}
  std::int64_t number();
  std::int64_t in_range(std::int64_t most);
  std::vector<std::byte> bytes();
  std::string text();
  extents numbers();
  digest128 digest();
  path where();
  std::size_t count();  // of things that take at least a byte each
  bool ok() const { return ok_; }
  bool finished() const { return ok_ && left_.empty(); }

 private:
  std::span<const std::byte> left_;
  bool ok_ = true;
};

}  // namespace shardmesh
