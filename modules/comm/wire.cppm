// SPDX-License-Identifier: Apache-2.0
// wire: control data about tensors as bytes. Small numbers take one byte, and received bytes are never trusted. For
// this room and the rooms above it, not for users. Room transfer moves the tensors' own bytes.
export module shardmesh.comm:wire;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;

export namespace shardmesh::detail {

class wire_writer {
 public:
  void number(std::int64_t value);  // zigzag, 7 bits per byte
  void flag(bool value) { number(value ? 1 : 0); }
  void numbers(std::span<const std::int64_t> values);  // at most max_rank values
  void where(const box& value);
  void text(std::string_view value) { bytes(std::as_bytes(std::span(value))); }
  void bytes(std::span<const std::byte> value);
  void digest(const digest128& value);
  void raw(std::span<const std::byte> value);
  std::span<const std::byte> written() const { return bytes_; }
  std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads the output of wire_writer. From the first malformed value on, every result is empty and `ok` is false.
class wire_reader {
 public:
  explicit wire_reader(std::span<const std::byte> bytes) : left_(bytes) {}

  std::int64_t number();
  std::int64_t in_range(std::int64_t least, std::int64_t most);
  bool flag() { return in_range(0, 1) == 1; }
  extents numbers();
  box where();
  std::string text();
  std::vector<std::byte> bytes();
  digest128 digest();
  std::size_t count();  // a number of items that take at least one byte each

  bool ok() const { return ok_; }
  // Returns whether all bytes were read and well-formed.
  bool finished() const { return ok_ && left_.empty(); }
  std::span<const std::byte> rest() const { return left_; }

 private:
  std::span<const std::byte> take(std::size_t size);
  std::span<const std::byte> left_;
  bool ok_ = true;
};

}  // namespace shardmesh::detail
