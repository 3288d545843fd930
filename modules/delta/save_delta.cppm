// SPDX-License-Identifier: Apache-2.0
// Writes the differences between two checkpoints.
export module shardmesh.delta:save_delta;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

export namespace shardmesh {

/// The options of `save_delta`. By default, an entry that a delta cannot hold is an error, and so is an existing file.
struct delta_options {
  int level = 3;                       // of zstd: from -7, the fastest, to 19, the smallest
  std::int64_t block_bytes = 1 << 20;  // of elements that are compared and stored together: 64 bytes to 16 MiB
  bool skip_unsupported = false;       // leave out entries that a delta cannot hold, and name them in notes
  bool check_sums = true;              // compare the read bytes with the checksums of the checkpoints
  // As in save_options.
  bool overwrite = false;
  bool durable = true;
  int threads = 0;
  time_limit within{};
  std::stop_token cancel{};
  std::function<void(std::int64_t bytes)> progress{};
  std::function<void()> before_commit{};  // the member of commit_hooks
};

/// The facts of a delta that was written.
struct delta_report {
  std::vector<std::string> notes;
  std::int64_t tensors = 0, objects = 0;    // of the new checkpoint, in the delta
  std::int64_t unchanged = 0, changed = 0;  // tensors that the base has with the same dtype and shape
  std::int64_t added = 0;                   // other tensors, which are stored whole
  std::int64_t removed = 0;                 // tensors of the base that the new checkpoint lacks
  std::int64_t skipped_tensors = 0, skipped_objects = 0;
  std::int64_t bytes = 0;        // of the new checkpoint's tensors
  std::int64_t delta_bytes = 0;  // of the file
};

/// Writes a file from which `open_delta` shows `next` over `base`. Both may have any formats and chunks. Tensors are
/// compared in blocks. Of a block that has not changed, only an entry of the table of blocks is stored; of another one,
/// the XOR with the base's elements is compressed, too. Tensors that the base lacks or has with another dtype or shape
/// are stored whole, and so are all objects.
/// Two calls with equal inputs write equal files. Memory: three blocks for each thread, and 16 stored blocks.
/// \errors errc::invalid_argument for a level or block size out of its range, and for a file that is a part of either
///         checkpoint; the problems of `next`; one problem for each entry that a delta cannot hold (errc::unsupported,
///         unless `skip_unsupported`): a dtype below one byte, an opaque tensor in several chunks or without an
///         archive, an object that its checkpoint does not hold whole; errc::gap and errc::overlap; those of the
///         readers, of their checksums, and of `staged_output`; errc::cancelled; errc::deadline_exceeded
/// Cost: reads both checkpoints once, and once more those chunks whose checksums are compared.
result<delta_report> save_delta(checkpoint_reader& base, checkpoint_reader& next, const std::filesystem::path& file,
                                const delta_options& options = {});

}  // namespace shardmesh
