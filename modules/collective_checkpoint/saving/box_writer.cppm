// SPDX-License-Identifier: Apache-2.0
// Not exported: box_writer, the executor's sink that writes boxes of tensors to their places in files of whole tensors.
// save_assignment decides which rank writes which box; safetensors_ranks writes the rest of the files.
module shardmesh.collective_checkpoint:box_writer;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;
import shardmesh.transfer;
import shardmesh.storage;
import shardmesh.checkpoint_core;

namespace shardmesh {

// A box of a tensor whose row-major elements start at byte `begin` of a file of the output.
struct placed_part {
  std::int32_t file = 0;
  std::int64_t begin = 0;  // where the whole tensor starts
  dtype type = dtype::undefined;
  extents shape;  // of the whole tensor
  box where;
};

// Models item_sink; the number of a part is its slot. The checksum of a part that is a whole tensor is computed while
// it is written.
class box_writer {
 public:
  // `output` outlives the writer. A part smaller than its tensor has elements of whole bytes. A part with a checksum is
  // copied piece by piece before it is summed and written: the program may change its memory during the save.
  box_writer(staged_output& output, std::vector<placed_part> parts);
  // Takes the part's own row-major bytes, front to back. Makes one write per run that is contiguous in the tensor.
  result<void> write(item_id item, std::int64_t first_byte, std::span<const std::byte> bytes);
  // errc::io if a part did not get all of its bytes. That is a bug of this library, and such a file must not be
  // committed.
  result<void> check_complete() const;
  // Returns the checksum of a complete part that is a whole tensor.
  digest128 digest(std::size_t part) const { return progress_[part].sum.digest(); }

 private:
  struct progress {
    bool is_whole = false;
    std::int64_t size_bytes = 0, written = 0;
    std::int64_t run_bytes = 0;  // contiguous both in the tensor and in the part
    extents leading;             // the part's outer sizes: one run per index of these
    std::int64_t first_run = 0;  // its place in the file
    xxh3_stream sum;             // of a whole tensor
    stable_piece piece;          // of a whole tensor, while it is written
  };
  std::int64_t place_of_run(std::size_t part, std::int64_t run) const;
  result<void> write_whole(std::size_t part, std::span<const std::byte> bytes);

  staged_output& output_;
  std::vector<placed_part> parts_;
  std::vector<progress> progress_;
};

}  // namespace shardmesh
