// SPDX-License-Identifier: Apache-2.0
// digest128: the identity of a description or of a file's content.
export module shardmesh.digest:digest128;

import shardmesh.std;

export namespace shardmesh {

/// A hash of 128 bits. Two descriptions have equal digests exactly when they are equal, up to hash collisions. Digests
/// are the same on every machine.
struct digest128 {
  std::uint64_t low = 0, high = 0;
  friend auto operator<=>(const digest128&, const digest128&) = default;
};

/// Returns 32 lower-case hexadecimal digits.
std::string to_hex(const digest128& digest);
/// Parses the output of `to_hex`; returns nothing for any other text.
std::optional<digest128> parse_digest(std::string_view hex);

}  // namespace shardmesh
