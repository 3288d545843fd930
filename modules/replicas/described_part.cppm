// SPDX-License-Identifier: Apache-2.0
// Not exported: the description of one rank's part that the ranks exchange: keys, shapes, and boxes without memory.
// Every rank merges the descriptions of all ranks into the same list, with the same problems.
module shardmesh.replicas:described_part;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;
import shardmesh.tree;
import shardmesh.comm;

namespace shardmesh {

// A tensor or an object, without its boxes.
struct entry_head {
  std::string key;
  bool is_object = false;
  extents shape;  // of an object: the length of its archive; of one to load: []
  dtype type = dtype::undefined;
};

struct described_entry {
  entry_head head;
  digest128 digest;  // of an object's archive
  std::vector<box> parts;
};

// One box that a rank has: number `part` of its entry number `entry`.
struct part_holder {
  std::int32_t rank = 0;
  std::size_t entry = 0;
  std::size_t part = 0;
};

// A box, with all ranks that have exactly this box, ascending.
struct merged_box {
  box where;
  std::vector<part_holder> holders;
};

struct merged_entry {
  entry_head head;
  digest128 digest;
  std::vector<part_holder> ranks;  // the ranks that have the entry, ascending; `part` is 0
  std::vector<merged_box> boxes;   // without empty ones, ascending
};

struct merged_parts {
  std::vector<merged_entry> entries;  // in the order of rank 0, then the additions of rank 1, and so on
  detail::problem_list problems;      // contradictions between ranks
};

void write_head(detail::wire_writer& out, const entry_head& head);
std::optional<entry_head> read_head(detail::wire_reader& in);
void write(detail::wire_writer& out, std::span<const described_entry> entries);
// Returns nothing for bytes that are not entries.
std::optional<std::vector<described_entry>> read_entries(detail::wire_reader& in);

// Returns the bytes of a box of a tensor; nothing if the box leaves the tensor, or if the bytes do not fit in 64 bits.
std::optional<std::int64_t> part_bytes(const extents& shape, dtype type, const box& where);

// Describes the tensors of a state, in order.
std::vector<described_entry> describe_tensors(const const_local_state& state);

// `by_rank`: the entries of every rank. With `lowest_rank_objects`, ranks with another value of an object than the
// lowest rank do not count as its holders; without, they are a problem.
merged_parts merge_parts(std::span<const std::vector<described_entry>> by_rank, bool lowest_rank_objects);

}  // namespace shardmesh
