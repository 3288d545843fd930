// SPDX-License-Identifier: Apache-2.0
// Not exported: reads numbers and strings one after the other from a range of a source, through a window of memory.
// Every length is compared with the bytes that are left before it is used.
module shardmesh.gguf:cursor;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;

namespace shardmesh::gguf {

class cursor {
 public:
  // Reads [begin, end) of the source, and refuses to go past its first `limit` bytes.
  cursor(const byte_source& source, std::int64_t begin, std::int64_t end, std::int64_t limit)
      : source_(source), begin_(begin), end_(end), limit_(limit), position_(begin) {}

  std::int64_t position() const { return position_; }
  std::int64_t left() const { return end_ - position_; }

  // Reads a little-endian number; `what` names it in errors.
  // \errors errc::bad_format past the end or the limit; those of the source
  template <class Number>
  result<Number> number(std::string_view what) {
    Number value{};
    auto done = copy(std::as_writable_bytes(std::span(&value, 1)), what);
    if (!done) return std::move(done).error();
    return value;
  }
  // Reads a length or a count. Refuses one whose items, of at least `item_bytes` each, do not fit into the rest.
  result<std::int64_t> count(std::int64_t item_bytes, std::string_view what);
  // Reads a string: its length, and its bytes.
  result<std::string> text(std::int64_t most, std::string_view what);
  result<void> skip(std::int64_t bytes, std::string_view what);

 private:
  static constexpr std::int64_t window_bytes = 1 << 16;

  result<void> check(std::int64_t bytes, std::string_view what) const;
  result<void> copy(std::span<std::byte> to, std::string_view what);
  result<void> check_stored(std::int64_t more);

  const byte_source& source_;
  std::int64_t begin_, end_, limit_, position_;
  std::vector<std::byte> window_;
  std::int64_t window_begin_ = 0;
  std::int64_t read_bytes_ = 0, checked_bytes_ = 1 << 20;
};

}  // namespace shardmesh::gguf
