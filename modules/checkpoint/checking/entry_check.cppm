// SPDX-License-Identifier: Apache-2.0
// Not exported: the checks that `verify` reports, and that every writer runs on the entries that it copies. No writer
// therefore accepts an entry that `verify` refuses. Checks of single chunks are in checked_source; those of objects are
// in checkpoint_reader::check_whole.
module shardmesh.checkpoint:entry_check;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.checkpoint_core;
import :conversion;

namespace shardmesh {

// The result of `check_tiling`. Problems are overlaps, gaps, chunks outside the tensor, and chunks that are stored
// twice.
struct tiling {
  std::vector<error> problems;
  std::int64_t more_problems = 0;
  std::optional<distribution> held;  // if there are no problems
};
tiling check_tiling(const catalog& contents, const tensor_entry& tensor);

// Returns true for the .pt file of one of several ranks. One problem of the reader already reports this, so the gaps in
// its tensors need no reports of their own.
bool is_of_one_rank(const checkpoint_reader& reader);

// Finds items of a folder that share bytes, except the items that entries KEY@RANK share on purpose. With `touched`
// (per tensor, then per object of the catalog), finds only those that involve a touched entry. Cost: O(n log n).
std::vector<error> find_shared_bytes(const checkpoint_reader& reader, const std::vector<bool>* touched = nullptr);

// Returns, per chunk and then per object of a DCP folder's catalog, whether its item begins inside an earlier item.
// `find_shared_bytes` reports such items. They are not opened, so that a region that many items name is read only once.
// Empty when there are none. Cost: O(n log n).
std::vector<bool> repeated_items(const checkpoint_reader& reader);

// Returns the entries of the reader that `settle_unsupported` leaves out of `work`.
std::vector<whole_entry> unsupported_entries(const catalog& contents, const conversion& work);

// Checks everything about a conversion's entries that cannot be checked while their elements are copied. This covers
// objects and opaque tensors, the stored entries from which they or their parts come, chunks without elements, and the
// ranges of the folder's record other than copied chunks. chunk_source::checking checks the copied chunks, with the
// same record. `left_out` are entries that the selection keeps and the destination cannot hold. They are checked like
// all others, because a user who skips unsupported entries does not know that they are damaged.
std::vector<error> check_before_copying(checkpoint_reader& reader, const conversion& work,
                                        std::span<const whole_entry> left_out, const recorded_sums* record,
                                        int threads);

// Returns the options with a last check before the commit. It compares chunks that were read only in part, through
// `source` or inside the reader, with their checksums. `reader` and `source` must outlive the save.
save_options with_last_check(save_options options, checkpoint_reader& reader, chunk_source& source);

}  // namespace shardmesh
