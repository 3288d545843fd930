// SPDX-License-Identifier: Apache-2.0
// Reads of a file that asks the disk for more at once when the page cache does not hold the bytes. Internal to
// `storage`.
module shardmesh.storage:file_ahead;

import shardmesh.std;

namespace shardmesh {

// Reads one file, and notices which of its bytes the page cache lacks. A read that has to wait for the disk first
// requests its range, at most 16 MiB at a time. Reads in sequence also request the following bytes: twice as many each
// time, at most as many as the sequence has read so far, and at most 16 MiB. A few threads then keep a disk busy that
// serves many requests at a time. Bytes in the cache take one system call, as with `pread`. Thread-safe.
class file_ahead {
 public:
  // Reads like `pread`, and repeats an interrupted call. May return fewer bytes than were asked for.
  // Precondition: `fd` always refers to the same file.
  std::ptrdiff_t read(int fd, std::int64_t offset, std::span<std::byte> out);

 private:
  void request(int fd, std::int64_t begin, std::int64_t end);
  bool nears_end(std::int64_t end) const;

  std::atomic<bool> unsupported_ = false;    // the file system cannot say whether a read would wait
  std::atomic<std::int64_t> requested_ = 0;  // the end of the range that was requested last; 0: none was
  std::atomic<std::int64_t> window_ = 0;
  std::mutex lock_;  // held by the thread that changes the three numbers of the sequence
  std::int64_t first_ = 0;
};

}  // namespace shardmesh
