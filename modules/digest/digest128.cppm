// SPDX-License-Identifier: Apache-2.0
// digest128: what a description or the content of a file is known by.
export module shardmesh.digest:digest128;

import shardmesh.std;

export namespace shardmesh {

/// 128 bits that are equal exactly when two descriptions are (up to hash collisions); the same on every machine.
struct digest128 {
  std::uint64_t low = 0, high = 0;
  friend auto operator<=>(const digest128&, const digest128&) = default;
};

/// 32 lower-case hex digits.
std::string to_hex(const digest128& digest);
/// What `to_hex` wrote; nothing for any other text.
std::optional<digest128> parse_digest(std::string_view hex);

}  // namespace shardmesh
