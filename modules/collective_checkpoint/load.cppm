// SPDX-License-Identifier: Apache-2.0
// load by many ranks: each gets the boxes that it has memory for, and what several want is read once. Not here: loading
// into one process (checkpoint), saving by many ranks (save).
export module shardmesh.collective_checkpoint:load;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.comm;
import shardmesh.catalog;
import shardmesh.checkpoint;

export namespace shardmesh {

/// Who reads what several ranks want.
enum class read_sharing : std::uint8_t {
  automatic,  // tensors of boxes of 64 KiB and more as `group`, others as `each_rank`
  group,      // every stored byte is read by one rank, and goes to all that want it
  each_rank,  // every rank reads for itself; no bytes are exchanged
};

/// What is done about a key that only one side has.
enum class key_check : std::uint8_t { strict, ignore };

/// How `load` by many ranks reads, and what it does about keys that only one side has. All but `loading` is the same on
/// every rank (errc::disagreement). By default a wanted key that the checkpoint lacks is an error, and one that nobody
/// wants is not.
struct rank_load_options {
  load_options loading{};  // of this rank; `allow_narrowing` is the same on every rank; `call` bounds the whole load,
                           // the waiting for other ranks too; `check` of one rank is that of all, unless each reads
                           // for itself
  read_sharing sharing = read_sharing::automatic;
  key_check missing = key_check::strict;     // a rank wants it, the checkpoint lacks it
  key_check unexpected = key_check::ignore;  // the checkpoint has it, no rank wants it
  /// Of this rank, for what it reads for others and for messages, about half each (of messages at least 32 MiB). What
  /// does not fit is read in rounds.
  std::int64_t memory_bytes = std::int64_t{128} << 20;
};

/// Collective; blocks. Fills the memory of `wanted` on every rank, however the checkpoint was cut and whatever the
/// layout here is; parts need not cover a tensor, and ranks may want different keys. Objects get the stored values.
///
/// \param reader  the same checkpoint on every rank
/// \param wanted  this rank's destinations; their memory is written to
/// \returns what became of the keys, the same on every rank: `problems` (the first 100) is empty exactly when all that
///         was wanted and is there was loaded; and what this rank read and received
/// \errors in the report, the same on every rank, before a byte is read: errc::missing_key, errc::shape_mismatch,
///         errc::dtype_mismatch (ranks want different dtypes; a tensor where an object is wanted, or the reverse),
///         errc::narrowing (a cast that loses values and was not allowed), errc::overlap (parts of a rank that fill one
///         byte, as of `load` of one rank), errc::disagreement (another checkpoint or other options on a rank), naming
///         keys and ranks. Later, naming the rank: those of `load` (of one rank) and of the communicator; at the end
///         errc::disagreement for tied weights whose values differ. Destinations hold unspecified values after an error; objects are set on success only.
/// Cost: every rank reads the metadata; two rounds of all_gather, two more where bytes are exchanged, two for every
///       round of reading for each other. With sharing each stored byte is read once, by a rank that wants something of
///       its tensor: a rank reads its own boxes where they are long runs that no other rank wants; one of several reads
///       a box that all of them want; of everything else (columns of stored rows, boxes that overlap, few large
///       replicas) ranks read pieces of chunks for each other, at most 8 MiB at once, evenly. A chunk that is
///       compressed, or compared with its checksum, is read by one rank.
/// Source: torch.distributed.checkpoint.load
load_report load(checkpoint_reader& reader, held_state& wanted, communicator_ref comm,
                 const rank_load_options& options = {});

/// The same; every rank opens the checkpoint.
load_report load(const std::filesystem::path& checkpoint, held_state& wanted, communicator_ref comm,
                 const rank_load_options& options = {});

/// Collective; `load` in a thread of each rank. A key has arrived (`loading.arrived`) when all that this rank wants of
/// it is in its memory, also what other ranks read for it; objects are set at the end. `wanted` and the communicator
/// belong to the load until `wait` returned on this rank, and outlive it; the communicator must allow calls from
/// another thread.
/// \errors errc::no_memory when there can be no thread; all others are in the report of `wait`
result<load_in_progress> start_load(const std::filesystem::path& checkpoint, held_state& wanted, communicator_ref comm,
                                    const rank_load_options& options = {});

}  // namespace shardmesh
