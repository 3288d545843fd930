// SPDX-License-Identifier: Apache-2.0
// sha256: digests of bytes that arrive in pieces.
export module shardmesh.digest:sha256;

import shardmesh.std;

export namespace shardmesh {

/// A running SHA-256. Movable; usable by one thread at a time.
class sha256 {
 public:
  sha256();
  sha256(sha256&&) noexcept;
  sha256& operator=(sha256&&) noexcept;
  ~sha256();
  void update(std::span<const std::byte> bytes);
  /// Returns 64 lower-case hexadecimal digits; no bytes may be added afterwards.
  std::string finish_hex();
  /// Digests `bytes` in one call; returns the digits that `finish_hex` would.
  static std::string hex_of(std::span<const std::byte> bytes);

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace shardmesh
