// SPDX-License-Identifier: Apache-2.0
// Not exported: the checks that `verify` reports and that every writer makes of what it copies, so that no writer
// accepts what `verify` refuses. Checks of single chunks are in checked_source, of objects in
// checkpoint_reader::check_whole.
module shardmesh.checkpoint:entry_check;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.catalog;
import :conversion;

namespace shardmesh {

// What is wrong with how a tensor's chunks lie: overlaps, gaps, chunks outside of it, chunks that are stored twice.
struct tiling {
  std::vector<error> problems;
  std::int64_t more_problems = 0;
  std::optional<distribution> held;  // when there are none
};
tiling check_tiling(const catalog& contents, const tensor_entry& tensor);

// Whether it is the .pt file of one rank of several, whose problem says so once: that its tensors have gaps follows.
bool is_of_one_rank(const checkpoint_reader& reader);

// The checkpoints, as they are stored, that the entries of a folder of parts come from.
std::set<const checkpoint_reader*> readers_of_parts(const checkpoint_reader& reader);

// Items of a folder that share bytes. With `touched` (per tensor, then per object of the catalog) only those that
// concern one of these entries. Cost: O(n log n).
std::vector<error> find_shared_bytes(const checkpoint_reader& reader, const std::vector<bool>* touched = nullptr);

// Per chunk, then per object of the catalog: whether its item begins in another one that was met before it, in a DCP
// folder. `find_shared_bytes` reports such items; they are not opened, so that a region that many items name is read
// once. Empty when there is none. Cost: O(n log n).
std::vector<bool> repeated_items(const checkpoint_reader& reader);

// The entries of the reader that `settle_unsupported` leaves out of `work`.
std::vector<whole_entry> unsupported_entries(const catalog& contents, const conversion& work);

// Everything about the entries of a conversion that cannot be compared while their elements are copied: objects and
// opaque tensors, what they or their parts are taken from, chunks without elements, and of the folder's record what is
// not a chunk that is copied. The rest is done by chunk_source::checking with the same record. `left_out`: entries that
// the selection keeps and the destination cannot hold; they are checked like all others, as a user who skips what is
// unsupported does not know that it is damaged.
std::vector<error> check_before_copying(checkpoint_reader& reader, const conversion& work,
                                        std::span<const whole_entry> left_out, const recorded_sums* record,
                                        int threads);

// The options, with a last check before the commit: chunks that were read in part only, through `source` or inside of
// the reader, are compared with their checksums. Both must outlive the save.
save_options with_last_check(save_options options, checkpoint_reader& reader, chunk_source& source);

}  // namespace shardmesh
