// SPDX-License-Identifier: Apache-2.0
// Copies bytes that other code may change while a writer sums and writes them.
export module shardmesh.checkpoint_core:stable_piece;

import shardmesh.std;

export namespace shardmesh {

/// Copies bytes piece by piece, so that a piece's checksum matches its bytes in the file even when a program changes
/// the memory during the save. A piece fits in a core's cache: the copy replaces the read that the checksum needs
/// anyway.
class stable_piece {
 public:
  /// The size of the largest piece, in bytes.
  static constexpr std::size_t max_bytes = std::size_t{512} << 10;

  stable_piece() = default;
  /// Allocates memory for pieces of at most `bytes`. Precondition: `bytes` is at most `max_bytes`.
  explicit stable_piece(std::size_t bytes) : memory_(std::make_unique_for_overwrite<std::byte[]>(bytes)) {}

  /// Returns a copy of `bytes`, valid until the next call. Without memory, returns `bytes` themselves, which no other
  /// code may change.
  std::span<const std::byte> of(std::span<const std::byte> bytes) {
    if (!memory_) return bytes;
    std::memcpy(memory_.get(), bytes.data(), bytes.size());
    return {memory_.get(), bytes.size()};
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace shardmesh
