// SPDX-License-Identifier: Apache-2.0
// Not exported: reads the units that opcodes take from a pickle's bytes: numbers, counted bytes, and lines. It also
// records the first problem. Every stated length is checked against the bytes left before it is used.
module;
#include <cstring>
module shardmesh.pickle:input;

import shardmesh.std;

namespace shardmesh::pickle {

/// The first problem of a run. It is recorded where it occurs and ends the run, so the hot path has no result objects.
struct failure {
  std::string text;
  bool is_cut = false;  // more bytes could complete the pickle

  /// Records a problem and returns false, so that an opcode can end with `return bad(...)`.
  [[gnu::cold, gnu::noinline]] bool bad(std::string message) {
    if (text.empty()) text = std::move(message);
    return false;
  }
  [[gnu::cold, gnu::noinline]] bool cut(std::string message) {
    is_cut = true;
    return bad(std::move(message));
  }
};

// Every function that returns false has recorded the reason.
class input {
 public:
  input(std::span<const std::byte> bytes, failure& problem) : bytes_(bytes), problem_(problem) {}

  inline std::size_t size() const { return bytes_.size(); }
  inline std::size_t position() const { return at_; }
  inline bool is_at_end() const { return at_ == bytes_.size(); }
  inline unsigned char byte_at(std::size_t offset) const { return std::to_integer<unsigned char>(bytes_[offset]); }
  /// Reads one byte. Precondition: the input is not at its end.
  inline unsigned char next() { return byte_at(at_++); }

  /// Checks that `count` more bytes follow.
  inline bool need(std::uint64_t count) { return count <= left() || too_long(count); }
  /// Takes the next `count` bytes. Precondition: they follow.
  inline std::span<const std::byte> take(std::size_t count) {
    const auto taken = bytes_.subspan(at_, count);
    at_ += count;
    return taken;
  }
  /// Reads a little-endian number.
  template <class Unsigned>
  bool number(Unsigned& out) {
    if (!need(sizeof(Unsigned))) return false;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(Unsigned); ++i)
      value |= std::to_integer<std::uint64_t>(bytes_[at_ + i]) << (8 * i);
    out = static_cast<Unsigned>(value);
    at_ += sizeof(Unsigned);
    return true;
  }
  /// Reads the text up to the next newline, and skips the newline.
  inline bool line(std::string_view& out) {
    const auto* begin = reinterpret_cast<const char*>(bytes_.data()) + at_;
    const void* end = left() == 0 ? nullptr : std::memchr(begin, '\n', left());
    if (end == nullptr) return problem_.cut("the line does not end");
    out = {begin, static_cast<std::size_t>(static_cast<const char*>(end) - begin)};
    at_ += out.size() + 1;
    return true;
  }

 private:
  inline std::size_t left() const { return bytes_.size() - at_; }
  [[gnu::cold, gnu::noinline]] bool too_long(std::uint64_t count) {
    return problem_.cut(std::to_string(count) + " bytes are stated, " + std::to_string(left()) + " are left");
  }

  std::span<const std::byte> bytes_;
  failure& problem_;
  std::size_t at_ = 0;
};

}  // namespace shardmesh::pickle
