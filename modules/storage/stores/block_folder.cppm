// SPDX-License-Identifier: Apache-2.0
// Not exported: block_folder, a folder of this machine that keeps blocks of objects of stores. Several processes may
// use one folder. It knows no store.
module shardmesh.storage:block_folder;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;

namespace shardmesh {

// A block: its object (a digest of URL, version, and size), its number in the object, and its length in bytes.
struct block_key {
  digest128 object;
  std::int64_t number = 0, length = 0;
};

// Thread-safe. Each block is a file with a digest of its key and its bytes. It is written under another name and then
// renamed, so that a reader finds a whole block or none. A damaged file counts as none, and is removed.
class block_folder {
 public:
  // Makes the folder if it does not exist, and removes the blocks beyond `most_bytes` that were used least recently.
  // \errors errc::io; errc::unsafe_path when every user of the machine may write into the folder
  static result<std::shared_ptr<block_folder>> open(const std::filesystem::path& folder, std::int64_t most_bytes);

  // Fills `out`, which has the length of the block. Returns false when the folder does not have the block.
  bool read(const block_key& key, std::span<std::byte> out) const;
  // Keeps a block. If that fails, this process writes no further ones: the folder saves time, and nothing depends on
  // it.
  void write(const block_key& key, std::span<const std::byte> bytes);
  // Returns false once this process writes no further blocks.
  bool is_writing() const { return is_writing_; }

 private:
  block_folder(std::filesystem::path folder, std::int64_t most_bytes)
      : folder_(std::move(folder)), most_bytes_(most_bytes) {}
  std::filesystem::path path_of(const block_key& key) const;
  bool put(const std::filesystem::path& path, std::span<const std::byte> head, std::span<const std::byte> bytes) const;
  void trim() const;

  std::filesystem::path folder_;
  std::int64_t most_bytes_;
  std::atomic<bool> is_writing_ = true;
  std::atomic<std::int64_t> written_bytes_ = 0;  // since the last `trim` of this process
};

}  // namespace shardmesh
