// SPDX-License-Identifier: Apache-2.0
// guarded_rounds: the frame of calls in which ranks work alone between rounds, and all get the same error in the end.
// The comparison of the ranks' arguments is in agreement.
export module shardmesh.comm:guarded_rounds;

import shardmesh.std;
import shardmesh.core;
import :agreement;
import :communicator_ref;

export namespace shardmesh::detail {

// Runs one rank's own part between two rounds. An exception becomes the rank's error, so that no other rank waits for
// it: the next round reports the error.
result<void> guarded(function_ref<result<void>()> part);

// Runs several parts with their rounds in the same way. An exception between the rounds aborts the communicator,
// because the other ranks wait in the next round.
result<void> guarded(communicator_ref comm, function_ref<result<void>()> rounds);

// One round: every rank reports whether its part succeeded (`mine`), with the note of `options`. All ranks get all
// notes, or the error of the lowest rank that has one. A rank that was cancelled still takes part, so that the others
// get its error. The function sets `options.problem`. Collective.
result<agreement_notes> settle_round(communicator_ref comm, call_options call, const result<void>& mine,
                                     agree_options options, std::span<const agreement_record> records);

}  // namespace shardmesh::detail
