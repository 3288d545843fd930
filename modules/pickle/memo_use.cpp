// SPDX-License-Identifier: Apache-2.0
module;
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>
module shardmesh.pickle;

import :memo_use;

namespace shardmesh::pickle {

std::size_t memo_use::rank(std::uint64_t number) const {
  const std::uint64_t below = bits_[number / 64] & ((std::uint64_t{1} << (number % 64)) - 1);
  return before_[number / 64] + static_cast<std::size_t>(std::popcount(below));
}

void memo_use::insert(std::uint64_t number) {
  if (number / 64 >= bits_.size()) bits_.resize(number / 64 + 1);
  bits_[number / 64] |= std::uint64_t{1} << (number % 64);
}

void memo_use::count() {
  before_.reserve(bits_.size());
  for (const std::uint64_t word : bits_) {
    before_.push_back(size_);
    size_ += static_cast<std::size_t>(std::popcount(word));
  }
}

namespace {

// Scans the opcodes in memory for their effect on the memo.
class memo_scan {
 public:
  explicit memo_scan(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::optional<memo_use> run() {
    while (at_ < bytes_.size()) {
      const auto opcode = std::to_integer<unsigned char>(bytes_[at_++]);
      if (opcode == '.') return fetched_.count(), std::move(fetched_);
      if (!step(opcode)) return std::nullopt;
    }
    return std::nullopt;
  }

 private:
  bool skip(std::uint64_t count) {
    if (count > bytes_.size() - at_) return false;
    at_ += static_cast<std::size_t>(count);
    return true;
  }
  template <std::size_t Width>
  bool number(std::uint64_t& out) {
    if (bytes_.size() - at_ < Width) return false;
    out = 0;
    for (std::size_t i = 0; i < Width; ++i) out |= std::to_integer<std::uint64_t>(bytes_[at_ + i]) << (8 * i);
    at_ += Width;
    return true;
  }
  template <std::size_t Width>
  bool counted() {
    std::uint64_t count = 0;
    return number<Width>(count) && skip(count);
  }
  // A 4-byte number may be far beyond the memo; such a pickle is refused, so the set stays small.
  template <std::size_t Width>
  bool fetch() {
    std::uint64_t of = 0;
    if (!number<Width>(of) || of >= entries_) return false;
    fetched_.insert(of);
    return true;
  }
  template <std::size_t Width>
  bool store() {
    std::uint64_t as = 0;
    return number<Width>(as) && as == entries_++;
  }

  bool step(unsigned char opcode) {
    switch (opcode) {
      case 0x94:
        return ++entries_, true;
      case 'h':
        return fetch<1>();
      case 'j':
        return fetch<4>();
      case 'q':
        return store<1>();
      case 'r':
        return store<4>();
      case '(':
      case '0':
      case '1':
      case 'N':
      case 'Q':
      case 'R':
      case 'a':
      case 'b':
      case 'd':
      case '}':
      case 'e':
      case 'l':
      case ']':
      case 'o':
      case 's':
      case 't':
      case ')':
      case 'u':
      case 0x81:
      case 0x85:
      case 0x86:
      case 0x87:
      case 0x88:
      case 0x89:
      case 0x8f:
      case 0x90:
      case 0x91:
      case 0x92:
      case 0x93:
        return true;
      case 'K':
      case 0x80:
      case 0x82:
        return skip(1);
      case 'M':
      case 0x83:
        return skip(2);
      case 'J':
      case 0x84:
        return skip(4);
      case 'G':
      case 0x95:
        return skip(8);
      case 'U':
      case 'C':
      case 0x8a:
      case 0x8c:
        return counted<1>();
      case 'T':
      case 'X':
      case 'B':
      case 0x8b:
        return counted<4>();
      case 0x8d:
      case 0x8e:
      case 0x96:
        return counted<8>();
      case 'c':
        return line() && line();
      default:  // DUP, which copies a reference; other opcodes with text arguments; unknown opcodes
        return false;
    }
  }
  bool line() {
    while (at_ < bytes_.size())
      if (bytes_[at_++] == std::byte{'\n'}) return true;
    return false;
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::uint64_t entries_ = 0;
  memo_use fetched_;
};

}  // namespace

std::optional<memo_use> memo_use_of(std::span<const std::byte> bytes) {
  return memo_scan(bytes).run();
}

}  // namespace shardmesh::pickle
