// SPDX-License-Identifier: Apache-2.0
// Not exported: read_ahead, which reads small ranges of an object on a server in few requests. A checkpoint has
// thousands of small tensors beside each other, and each is read by a call of its own.
module shardmesh.storage:read_ahead;

import shardmesh.std;
import shardmesh.core;
import :source;

namespace shardmesh {

// Thread-safe. A small range that begins soon after an earlier one continues it: the bytes after it are read as well,
// 64 KiB at first and twice as many each time, up to the bytes that cost as much as a request, and 1 MiB. They are kept
// until other ranges need the memory, which is at most 64 MiB in the process. Other ranges are read as they are.
class read_ahead {
 public:
  // Precondition: the range lies within the source.
  result<void> read(const byte_source& from, std::int64_t offset, std::span<std::byte> out) const;

 private:
  // Bytes of the source, from `begin` on.
  struct window;
  // Ranges that continue each other.
  struct stream {
    std::int64_t end = -1;        // of the last range; -1: unused
    std::int64_t next_bytes = 0;  // of the next window; 0: no range has continued another
    std::uint64_t used_at = 0;
    std::shared_ptr<const window> bytes;
  };
  // The kept window that holds a range, or else the size of the next window of a stream that the range continues.
  struct place {
    std::shared_ptr<const window> bytes;
    std::int64_t window_bytes = 0;  // 0: read the range alone
  };
  place find(std::int64_t offset, std::int64_t length, std::int64_t most_bytes) const;
  void remember(std::int64_t offset, std::int64_t end, std::int64_t window_bytes,
                std::shared_ptr<const window> bytes) const;
  stream* stream_before(std::int64_t offset) const;

  mutable std::mutex lock_;
  mutable std::array<stream, 16> streams_;
  mutable std::uint64_t clock_ = 0;
};

}  // namespace shardmesh
