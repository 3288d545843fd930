// SPDX-License-Identifier: Apache-2.0
// Not exported: box_writer: the executor's sink that puts boxes of tensors where they belong in files that hold the
// tensors whole. Not here: who writes which box (save_assignment), what else is in the files (safetensors_ranks).
module shardmesh.collective_checkpoint:box_writer;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;
import shardmesh.transfer;
import shardmesh.storage;
import shardmesh.catalog;

namespace shardmesh {

// A box of a tensor whose row-major elements begin at `begin` of a file of the output.
struct placed_part {
  std::int32_t file = 0;
  std::int64_t begin = 0;  // of the whole tensor
  dtype type = dtype::undefined;
  extents shape;  // of the whole tensor
  box where;
};

// Models item_sink; a part's number is its slot. A part that is the whole tensor gets its checksum on the way.
class box_writer {
 public:
  // The output outlives it. Parts smaller than their tensor have elements of whole bytes. A part that gets its checksum
  // is copied piece by piece before it is summed and written: the program may change its memory during the save.
  box_writer(staged_output& output, std::vector<placed_part> parts);
  // Front to back of the part's own row-major bytes. One write for each run that is contiguous in the tensor.
  result<void> write(item_id item, std::int64_t first_byte, std::span<const std::byte> bytes);
  // errc::io when a part did not get all of its bytes: a bug of ours, never to be committed.
  result<void> check_complete() const;
  // Of a complete part that is the whole tensor.
  digest128 digest(std::size_t part) const { return progress_[part].sum.digest(); }

 private:
  struct progress {
    bool is_whole = false;
    std::int64_t size_bytes = 0, written = 0;
    std::int64_t run_bytes = 0;  // of the tensor that are contiguous in it and in the part
    extents leading;             // of the part's sizes: one run per index of these
    std::int64_t first_run = 0;  // where it is in the file
    xxh3_stream sum;             // of a whole tensor
    stable_piece piece;          // of a whole tensor, while it is being written
  };
  std::int64_t place_of_run(std::size_t part, std::int64_t run) const;
  result<void> write_whole(std::size_t part, std::span<const std::byte> bytes);

  staged_output& output_;
  std::vector<placed_part> parts_;
  std::vector<progress> progress_;
};

}  // namespace shardmesh
