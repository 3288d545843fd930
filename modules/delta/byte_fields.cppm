// SPDX-License-Identifier: Apache-2.0
// Not exported: little-endian numbers, texts, and digests one after the other, as a delta describes itself.
module shardmesh.delta:byte_fields;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;

namespace shardmesh::delta {

inline constexpr std::size_t digest_bytes = 16;

class field_writer {
 public:
  template <std::integral Number>
  void number(Number value) {
    add(&value, sizeof value);
  }
  // A number of bytes, and the bytes.
  void text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    add(value.data(), value.size());
  }
  void digest(const digest128& value) {
    number(value.low);
    number(value.high);
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void add(const void* from, std::size_t count);

  std::vector<std::byte> bytes_;
};

// Reads fields of untrusted bytes. After a field that exceeds them, every field is 0 or empty, and `is_whole` is false.
class field_reader {
 public:
  explicit field_reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <std::integral Number>
  Number number() {
    Number value{};
    take(&value, sizeof value);
    return value;
  }
  std::string text();
  digest128 digest() {
    digest128 made;
    made.low = number<std::uint64_t>();
    made.high = number<std::uint64_t>();
    return made;
  }
  bool is_whole() const { return is_whole_; }
  std::size_t left() const { return rest_.size(); }

 private:
  void take(void* to, std::size_t count);

  std::span<const std::byte> rest_;
  bool is_whole_ = true;
};

}  // namespace shardmesh::delta
