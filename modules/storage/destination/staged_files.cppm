// SPDX-License-Identifier: Apache-2.0
// Not exported: the files that an output writes: open descriptors, gathered small writes, early write-back, and syncs.
// The names of the files are in `staging_place`.
module shardmesh.storage:staged_files;

import shardmesh.std;
import shardmesh.core;
import :descriptors;
import :staged_output;
import :staging_place;

namespace shardmesh {

// A file's number is the index of its name in the place. `write` and `read` are thread-safe; the other calls are not.
class staged_files {
 public:
  // The place and the options must outlive this object. They may change until the first call, and names may be added
  // to the place between calls.
  staged_files(const staging_place& place, const output_options& options);
  staged_files(const staged_files&) = delete;
  staged_files& operator=(const staged_files&) = delete;

  result<void> write(std::int32_t file, std::int64_t offset, std::span<const std::byte> bytes);
  result<void> read(std::int32_t file, std::int64_t offset, std::span<std::byte> bytes);
  result<void> write_all_gathered();
  // Lets `finish` sync a new file, even if nothing is written to it.
  void note_added(std::int32_t file);
  result<void> remove(std::int32_t file);
  // Writes gathered bytes, and syncs and closes every file. Returns `lost_` at every call, because its bytes are lost.
  result<void> finish();
  // Closes every file: the written bytes are no longer wanted.
  void abandon();

 private:
  // The bytes that were written to a file last, and are only in memory.
  struct gathered {
    std::mutex lock;
    std::int64_t offset = 0;
    std::vector<std::byte> bytes;
  };

  result<descriptors::use> acquire(std::int32_t file);
  result<void> end(std::int32_t file, int fd);
  result<void> write_now(std::int32_t file, std::int64_t offset, std::span<const std::byte> bytes);
  void write_early(std::int32_t file, int fd, std::int64_t bytes);
  std::size_t gathers() const;
  gathered& waiting_of(std::int32_t file);
  result<void> write_gathered(std::int32_t file, gathered& of);
  result<void> gather(std::int32_t file, std::int64_t offset, std::span<const std::byte> bytes, std::size_t most);

  const staging_place& place_;
  const output_options& options_;
  std::mutex lock_;
  std::set<std::int32_t> unsynced_;                    // files that were added or written to, and not synced since
  std::map<std::int32_t, std::int64_t> unsent_bytes_;  // per file: bytes since write-back was last started
  std::optional<error> lost_;                          // the first error of a sync, a close, or a gathered write
  std::map<std::int32_t, gathered> waiting_;
  descriptors opened_;
};

}  // namespace shardmesh
