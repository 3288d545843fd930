// SPDX-License-Identifier: Apache-2.0
// xxh3: XXH3-128 of bytes that arrive in pieces. It is the checksum of everything that shardmesh writes.
export module shardmesh.digest:xxh3;

import shardmesh.std;
import :digest128;

export namespace shardmesh {

/// A running XXH3-128.
class xxh3_stream {
 public:
  xxh3_stream();
  xxh3_stream(xxh3_stream&&) noexcept;
  xxh3_stream& operator=(xxh3_stream&&) noexcept;
  ~xxh3_stream();
  void update(std::span<const std::byte> bytes);
  /// Returns the digest of all bytes added so far.
  digest128 digest() const;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

/// Digests `bytes` in one call.
digest128 xxh3(std::span<const std::byte> bytes);

}  // namespace shardmesh
