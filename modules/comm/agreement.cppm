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

/// The options of `agree`: the records' name in errors, whether their order counts, and this rank's note or problem.
struct agree_options {
  std::string what = "records";    // the records' name in errors: "ranks disagree on 2 of 10 transfers"
  bool ordered = false;            // whether the order must be equal as well
  std::vector<std::byte> note{};   // bytes that this rank sends to the others
  const error* problem = nullptr;  // not null: this rank cannot continue, and every rank returns this error
};

/// The notes of all ranks, in rank order.
using agreement_notes = std::vector<std::vector<std::byte>>;

/// Computes the digest of records: of their sequence if `ordered`, otherwise of their multiset.
digest128 digest_of(std::span<const agreement_record> records, bool ordered);

/// Checks that all ranks have the same records and are in the same call (`call.name`). Collective; blocks. When the
/// ranks agree, it costs one all_gather of a digest. When they disagree, a second one exchanges all records, and every
/// rank returns the same error. The communicator stays usable.
/// \param digest   equal on two ranks exactly when their records are equal
/// \param records  called only on disagreement
/// \errors errc::disagreement: the ranks are in different calls ("rank 0 called save, rank 1 called load"), or their
///         records differ (names the first differing keys, with each text and its ranks); the `problem` of the lowest
///         rank that has one, naming that rank unless it already names ranks or is errc::gap; the communicator's
///         errors.
result<agreement_notes> agree(communicator_ref comm, const digest128& digest,
                              function_ref<std::vector<agreement_record>()> records, const agree_options& options = {},
                              const call_options& call = {});

/// Does the same with records that exist already.
result<agreement_notes> agree(communicator_ref comm, std::span<const agreement_record> records,
                              const agree_options& options = {}, const call_options& call = {});

}  // namespace shardmesh
