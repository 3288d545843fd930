// SPDX-License-Identifier: Apache-2.0
// Agreement: ranks check that they are about to make the same call with the same arguments, before any data moves.
// Rooms transfer and sharding make the records that the ranks compare.
export module shardmesh.comm:agreement;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :communicator_ref;

export namespace shardmesh {

/// One item that all ranks must describe identically: its name, and a readable text of all that must be equal.
struct agreement_record {
  std::string key;
  std::string text;
  friend bool operator==(const agreement_record&, const agreement_record&) = default;
};

/// Adds the note `one` of some ranks to the note `all` of others. The order and the grouping must not matter. It is not
/// called for empty notes, which add nothing.
using note_combiner = std::function<void(std::vector<std::byte>& all, std::span<const std::byte> one)>;

/// The options of `agree`: the records' name in errors, whether their order counts, and this rank's note or problem.
struct agree_options {
  std::string what = "records";    // the records' name in errors: "ranks disagree on 2 of 10 transfers"
  bool ordered = false;            // whether the order must be equal as well
  std::vector<std::byte> note{};   // bytes that this rank sends to the others
  const error* problem = nullptr;  // not null: this rank cannot continue, and every rank returns this error
  note_combiner combine{};         // not empty: `agree` returns one note, the combination of those of all ranks
};

/// The notes of all ranks, in rank order; or one note, if they are combined.
using agreement_notes = std::vector<std::vector<std::byte>>;

/// Computes the digest of records: of their sequence if `ordered`, otherwise of their multiset.
digest128 digest_of(std::span<const agreement_record> records, bool ordered);

/// Checks that all ranks have the same records and are in the same call (`call.name`). Collective; blocks. When the
/// ranks disagree, they exchange all records, and every rank returns the same error. The communicator stays usable.
/// \param digest   equal on two ranks exactly when their records are equal
/// \param records  called only on disagreement
/// \errors errc::disagreement: the ranks are in different calls ("rank 0 called save, rank 1 called load"), only some of
///         them combine their notes, or their records differ (names the first differing keys, with each text and its
///         ranks); the `problem` of the lowest rank that has one, naming that rank unless it already names ranks or is
///         errc::gap; the communicator's errors. Of more than 64 different lists of records, those of the lowest ranks
///         are compared, and the ranks of the others are counted.
/// Cost: up to 16 ranks, an all_gather of a digest and the notes. More ranks with messages in host memory send them
///       along a tree: each rank exchanges 80 bytes with its parent, and with each of its at most 4 children. The note
///       of rank 0 takes two more messages per edge of the tree, combined notes take four, and other notes an
///       all_gather.
result<agreement_notes> agree(communicator_ref comm, const digest128& digest,
                              function_ref<std::vector<agreement_record>()> records, const agree_options& options = {},
                              const call_options& call = {});

/// Does the same with records that exist already.
result<agreement_notes> agree(communicator_ref comm, std::span<const agreement_record> records,
                              const agree_options& options = {}, const call_options& call = {});

}  // namespace shardmesh

export namespace shardmesh::detail {

// Adds a note to the combination `all` of others, of which either may be empty.
void add_note(std::vector<std::byte>& all, std::span<const std::byte> one, const note_combiner& combine);

// The two ways of `agree`, with equal results: every rank learns the ballots of all ranks; or rank 0 decides, and its
// verdict goes along a tree (for communicators with host messages). `agree` chooses by the number of ranks.
inline constexpr std::int32_t most_gathered_ranks = 16;
result<agreement_notes> agree_by_gather(communicator_ref comm, const digest128& digest,
                                        function_ref<std::vector<agreement_record>()> records,
                                        const agree_options& options, const call_options& call);
result<agreement_notes> agree_along_tree(communicator_ref comm, const digest128& digest,
                                         function_ref<std::vector<agreement_record>()> records,
                                         const agree_options& options, const call_options& call);

}  // namespace shardmesh::detail
