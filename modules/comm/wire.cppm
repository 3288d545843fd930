// SPDX-License-Identifier: Apache-2.0
// Not exported: numbers and texts as bytes between ranks of one program, little-endian; reading never leaves the bytes.
module shardmesh.comm:wire;

import shardmesh.std;

namespace shardmesh {

static_assert(std::endian::native == std::endian::little, "the wire format is the machine's own");

class byte_writer {
 public:
  template <class Number>
    requires std::is_arithmetic_v<Number>
  void number(Number value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  void raw(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  void text(std::string_view value) {
    number(static_cast<std::uint64_t>(value.size()));
    raw(std::as_bytes(std::span(value)));
  }
  std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class byte_reader {
 public:
  explicit byte_reader(std::span<const std::byte> bytes) : left_(bytes) {}
  template <class Number>
    requires std::is_arithmetic_v<Number>
  std::optional<Number> number() {
    if (left_.size() < sizeof(Number)) return std::nullopt;
    Number value{};
    std::memcpy(&value, left_.data(), sizeof value);
    left_ = left_.subspan(sizeof value);
    return value;
  }
  std::optional<std::string> text() {
    const auto length = number<std::uint64_t>();
    if (!length || *length > left_.size()) return std::nullopt;
    std::string value(reinterpret_cast<const char*>(left_.data()), static_cast<std::size_t>(*length));
    left_ = left_.subspan(value.size());
    return value;
  }
  // A count of things that take at least `least_bytes` each: never more than there can be.
  std::optional<std::size_t> count(std::size_t least_bytes) {
    const auto n = number<std::uint64_t>();
    if (!n || *n > left_.size() / least_bytes) return std::nullopt;
    return static_cast<std::size_t>(*n);
  }
  std::span<const std::byte> rest() const { return left_; }

 private:
  std::span<const std::byte> left_;
};

}  // namespace shardmesh
