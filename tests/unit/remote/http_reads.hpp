// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the client: options with short times, random content, guarded memory, and reads of one range.
// It imports, so it is among the last headers that a test includes.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

import shardmesh.remote;

namespace http_reads {

// Short times, so that faults are noticed within a test.
inline shardmesh::remote::http_options impatient() {
  return {.connections = 8, .stall = std::chrono::milliseconds(250), .total = std::chrono::seconds(20), .attempts = 4};
}

// For servers that do not stall: a pause of a busy machine is no fault.
inline shardmesh::remote::http_options patient() {
  shardmesh::remote::http_options options = impatient();
  options.stall = std::chrono::seconds(20);
  options.total = std::chrono::seconds(60);
  return options;
}

inline std::string random_text(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string made(size, '\0');
  for (char& c : made) c = static_cast<char>(random());
  return made;
}

// Memory with a guard on both sides.
class guarded {
 public:
  explicit guarded(std::size_t size) : bytes_(size + 2 * guard, std::byte{0xAB}) {}
  std::span<std::byte> out() { return std::span(bytes_).subspan(guard, bytes_.size() - 2 * guard); }
  std::string_view text() { return {reinterpret_cast<const char*>(out().data()), out().size()}; }
  bool is_intact() const {
    const auto untouched = [](std::byte b) { return b == std::byte{0xAB}; };
    return std::all_of(bytes_.begin(), bytes_.begin() + guard, untouched) &&
           std::all_of(bytes_.end() - guard, bytes_.end(), untouched);
  }

 private:
  static constexpr std::ptrdiff_t guard = 64;
  std::vector<std::byte> bytes_;
};

inline shardmesh::result<void> read_one(const shardmesh::remote::http_client& client, const std::string& url,
                                        std::int64_t offset, std::span<std::byte> out, std::int64_t total,
                                        const shardmesh::call_options& call = {},
                                        const std::string& version = "\"1\"") {
  const shardmesh::remote::http_range range{offset, out};
  return client.read({.url = url}, std::span(&range, 1), version, total, {}, call);
}

}  // namespace http_reads
