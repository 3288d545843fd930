// SPDX-License-Identifier: Apache-2.0
// `load` on many ranks: each rank gets the boxes that it has memory for, and data that several ranks want is read once.
// Loading into one process is in room checkpoint; saving from many ranks is in save.
export module shardmesh.collective_checkpoint:load;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.comm;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;

export namespace shardmesh {

/// How ranks share the reading of data that several of them need.
enum class read_sharing : std::uint8_t {
  automatic,  // as `group` for tensors with a box of 64 KiB or more, else as `each_rank`
  group,      // one rank reads each stored byte and sends it to all ranks that need it
  each_rank,  // every rank reads for itself; no bytes are exchanged
};

/// The handling of a key that only one side has.
enum class key_check : std::uint8_t { strict, ignore };

/// The options of `load` on many ranks. By default a wanted key that the checkpoint lacks is an error, and a stored key
/// that no rank wants is not.
struct rank_load_options {
  // As in load_options, for this rank. `allow_narrowing` is the same on every rank. `within` and `cancel` bound the
  // whole load, including the wait for other ranks. `check` on one rank applies to all ranks, unless each rank reads
  // for itself.
  int threads = 0;
  bool allow_narrowing = false;
  bool check = false;
  time_limit within{};
  std::stop_token cancel{};
  std::function<void(std::int64_t bytes)> progress{};
  std::function<void(const std::string& key)> on_arrival{};
  read_options reading{};
  // The same on every rank (errc::disagreement).
  read_sharing sharing = read_sharing::automatic;
  key_check missing = key_check::strict;     // a rank wants it, the checkpoint lacks it
  key_check unexpected = key_check::ignore;  // the checkpoint has it, no rank wants it
  /// The memory of this rank for data that it reads for others, and for messages: about half for each, but at least 32
  /// MiB for messages. Data that does not fit is read in rounds.
  std::int64_t memory_bytes = std::int64_t{128} << 20;

  /// Returns the options of this rank's own reads.
  load_options loading() const {
    return {.threads = threads,
            .allow_narrowing = allow_narrowing,
            .check = check,
            .within = within,
            .cancel = cancel,
            .progress = progress,
            .on_arrival = on_arrival,
            .reading = reading};
  }
};

/// Loads tensors and objects on every rank, into the memory of `wanted`. Collective; blocks. The layout here may differ
/// from that of the checkpoint. Parts need not cover a tensor, and ranks may want different keys.
///
/// \param reader  the same checkpoint on every rank
/// \param wanted  this rank's destinations; the load writes to their memory, and sets the objects to the stored values
/// \returns the loaded, missing, and unexpected keys, the same on every rank, and the bytes that this rank read and
///          received
/// \errors the same on every rank. Before a byte is read, one problem for each key, of which the first 100 are kept,
///         naming keys and ranks: errc::missing_key, errc::shape_mismatch, errc::dtype_mismatch (ranks want different
///         dtypes, or one side has a tensor and the other an object), errc::narrowing (a cast that loses values and was
///         not allowed), errc::overlap (parts of one rank that fill the same byte, as in `load` of one rank),
///         errc::disagreement (a rank has another checkpoint or other options). Later, naming the rank: those of `load`
///         of one rank and of the communicator. At the end: errc::disagreement for tied weights whose values differ.
///         After an error destinations hold unspecified values; objects are set on success only.
/// Cost: every rank reads the metadata. Rank 0 gets the requests of all ranks, plans, and sends each rank its share; the
///       messages and the work of another rank do not grow with the number of ranks (docs/scale.md). There are two
///       agreements (`agree`), and two more if a rank sends boxes that it reads for others. If ranks read pieces for
///       each other, there are one more, two per round of pieces, and one more if a chunk must be opened to learn its
///       form. With sharing, each stored byte is read once, by a rank that wants part of its tensor. A rank reads its
///       own boxes if they are long runs that no other rank wants. One of several ranks reads a box that all of them
///       want. Ranks read everything else in pieces for each other, evenly, at most 8 MiB at once: columns of stored
///       rows, overlapping boxes, and a few large replicas. One rank reads a chunk that is compressed, or that is
///       compared with its checksum.
/// Source: torch.distributed.checkpoint.load
result<load_report> load(checkpoint_reader& reader, local_state& wanted, communicator_ref comm,
                         const rank_load_options& options = {});

/// Does the same for a path; every rank opens the checkpoint.
result<load_report> load(const std::filesystem::path& checkpoint, local_state& wanted, communicator_ref comm,
                         const rank_load_options& options = {});

/// Starts `load` in a thread of each rank. Collective. `on_arrival` reports a key when everything that this rank
/// wants of it is in its memory, including what other ranks read for it; objects are set at the end. Until `wait` has
/// returned on this rank, `wanted` and the communicator belong to the load and must stay alive. The communicator must
/// allow calls from another thread.
/// \errors errc::no_memory if the thread cannot start; `wait` returns all others
result<load_in_progress> start_load(const std::filesystem::path& checkpoint, local_state& wanted, communicator_ref comm,
                                    const rank_load_options& options = {});

}  // namespace shardmesh
