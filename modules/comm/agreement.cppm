// SPDX-License-Identifier: Apache-2.0
// Agreement: ranks make sure that they are about to do the same thing, before any byte of it moves.
// Not here: what they describe (transfer, sharding).
export module shardmesh.comm:agreement;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :communicator_ref;

export namespace shardmesh {

/// One thing that all ranks must describe alike: its name, and everything about it that must be equal, readable.
struct agreement_record {
  std::string key;
  std::string text;
  friend bool operator==(const agreement_record&, const agreement_record&) = default;
};

/// What `agree` takes beside the records: what they are called in errors, whether their order counts, and what this
/// rank has to tell the others.
struct agree_options {
  std::string what = "records";    // what the records are, in errors: "ranks disagree on 2 of 10 transfers"
  bool ordered = false;            // the order matters too
  std::vector<std::byte> note{};   // bytes of this rank's own for the others
  const error* problem = nullptr;  // null: none; else this rank cannot go on: every rank returns this error
};

/// The notes of all ranks, in rank order.
using agreement_notes = std::vector<std::vector<std::byte>>;

/// The digest of records: of their set, or of their sequence.
digest128 digest_of(std::span<const agreement_record> records, bool ordered);

/// Collective; blocks. Every rank is in the same call (`call.name`). One all_gather of a digest when the ranks agree.
/// When they do not, a second one of all records, and every rank returns the same error. The communicator stays usable.
/// \param digest   equal on two ranks exactly when their records are
/// \param records  called only on disagreement
/// \errors errc::disagreement: the ranks are in different calls ("rank 0 called save, rank 1 called load"), or describe
///         things differently (the first differing keys, what they are and on which ranks); the `problem` of the lowest
///         rank that has one, with that rank unless it names ranks or is a gap; those of the communicator.
result<agreement_notes> agree(communicator_ref comm, const digest128& digest,
                              function_ref<std::vector<agreement_record>()> records, const agree_options& options = {},
                              const call_options& call = {});

/// The same, of records that are at hand.
result<agreement_notes> agree(communicator_ref comm, std::span<const agreement_record> records,
                              const agree_options& options = {}, const call_options& call = {});

}  // namespace shardmesh
