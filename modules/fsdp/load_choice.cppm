// SPDX-License-Identifier: Apache-2.0
// Not exported: decides from the notes of all ranks which entries of a model are loaded, and the outcome for every key.
module shardmesh.fsdp:load_choice;

import shardmesh.std;
import shardmesh.sharding;
import :load;
import :model;
import :rank_note;

namespace shardmesh::detail {

struct load_choice {
  std::vector<std::size_t> sources;  // the entries that are read, ascending
  std::vector<load_entry> entries;   // the outcome for every key
};

load_choice choose_entries(std::span<const fsdp_entry> entries, std::span<const rank_note> notes);

// Checks that all ranks with a key have it whole, or all have it sharded, and in one dtype.
result<void> check_agreement(std::span<const fsdp_entry> entries, std::span<const std::size_t> sources,
                             std::span<const rank_note> notes);

// Checks that no key is missing or unexpected.
result<void> check_complete(const load_state_report& report);

}  // namespace shardmesh::detail
