// SPDX-License-Identifier: Apache-2.0
// Not exported: single frames of zstd in memory. Streams are decoded in room storage. Without memory, the calls throw
// std::bad_alloc, as containers do.
module shardmesh.delta:zstd_frame;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::delta {

inline constexpr int lowest_level = -7, highest_level = 19;

// Makes frames, with memory that the next call reuses. Not thread-safe.
class frame_compressor {
 public:
  explicit frame_compressor(int level);
  ~frame_compressor();
  // Returns the frame, which is valid until the next call; nothing if it is not shorter than `bytes`.
  std::optional<std::span<const std::byte>> compress(std::span<const std::byte> bytes);

 private:
  struct state;
  std::unique_ptr<state> state_;
};

// Reads frames. Not thread-safe.
class frame_decompressor {
 public:
  frame_decompressor();
  ~frame_decompressor();
  // Fills `out`. It takes no memory that depends on the frame.
  // \errors errc::bad_format if the frame is damaged or holds another number of bytes
  result<void> decompress(std::span<const std::byte> frame, std::span<std::byte> out);

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace shardmesh::delta
