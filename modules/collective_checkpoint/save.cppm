// SPDX-License-Identifier: Apache-2.0
// save by many ranks: each writes its own file of one DCP folder, or its part of safetensors files that they share; the
// destination appears whole or not at all. Not here: saving from one process (checkpoint), loading on many ranks
// (load).
export module shardmesh.collective_checkpoint:save;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.comm;
import shardmesh.catalog;
import shardmesh.checkpoint;
import :staging_pool;

export namespace shardmesh {

/// What a rank is about to do.
enum class save_phase : std::uint8_t {
  describe,  // tell the others what it holds
  stage,     // make the folder (rank 0) or find it
  write,     // write its bytes
  finish,    // tell the others that its bytes are on the disk
  commit,    // rank 0: write the metadata and put the destination in place; the others wait for it
};

/// How `save` and `start_save` by many ranks write. All but `before`, `staging` and the parts of `saving` named below
/// is the same on every rank (errc::disagreement).
struct rank_save_options {
  save_options saving{};  // the same on every rank, but for `call`, `progress` and `before_commit`; `memory_bytes` is
                          // per rank; `call` bounds the whole save, the waiting for other ranks too
  target_format to = target_format::dcp;  // dcp, safetensors or hf
  selection_options selection{};          // which entries, under which names and dtypes: as `convert` has it
  std::int64_t max_shard_bytes = std::int64_t{5} * 1000 * 1000 * 1000;  // hf: of one file
  bool skip_objects = false;                                            // save the tensors only
  /// Ranks that hold different values of an object: false, an error naming both; true, the lowest rank's is written.
  bool lowest_rank_objects = false;
  /// Called on this rank before each phase; an error fails the save on every rank. At `commit` only rank 0's counts.
  std::function<result<void>(save_phase)> before{};
  staging_pool staging{};  // of this rank: where `start_save` copies to; none: into memory of its own
};

/// Collective; blocks. Saves what the ranks hold together as one checkpoint. A box that several ranks hold is written
/// once by the one with the least to write (boxes with one holder are dealt out first, then the largest ones), an
/// object by the lowest rank that has it. Rank 0 writes what ends the checkpoint and puts it in place in one step,
/// after all ranks said that their bytes are on the disk.
///
/// As DCP each rank writes its own file (`__RANK_0.distcp`), which PyTorch's `torch.distributed.checkpoint.load` reads.
/// As safetensors (one file, or a Hugging Face folder) tensors are whole: every rank writes its boxes at their places
/// in files that all of them share; byte for byte what `convert` makes of the DCP folder of the same state. No rank
/// holds more than its own part and `saving.memory_bytes`.
///
/// \param destination  the same path on every rank, of one file system that all ranks see
/// \param held         this rank's part; its memory should not change until the call returns: the checkpoint holds
///                     whatever is there when a piece is written, with the checksum of just these bytes
/// \returns the same outcome on every rank; counts are of the whole save
/// \errors in the report, the same on every rank, before a file exists: errc::shape_mismatch, errc::dtype_mismatch,
///         errc::out_of_bounds, errc::unsupported (memory that no backend reaches, a dtype that PyTorch lacks, an
///         opaque object that is no archive; what safetensors cannot hold, or an object with tensors inside there; a
///         format that ranks do not write), errc::duplicate_key, errc::disagreement (ranks contradict each other
///         about a key, the destination, the options), errc::invalid_argument (a rule of the selection that matches no
///         key), errc::overlap and errc::gap naming key, ranks and boxes; errc::destination_exists. Later, naming the rank: errc::io, errc::no_space; errc::cancelled,
///         errc::deadline_exceeded and those of the communicator, also when a rank is lost. After an error the
///         destination is as it was, and the survivors take away what was staged. (When a rank is lost while rank 0
///         puts the folder in place, the error says so: then the new folder may be there, whole.)
/// Cost: DCP: five rounds of all_gather: one of the descriptions (a path, a shape and 2·rank numbers per box), one of
///       32 bytes per chunk written, three of nothing; each byte is written once and each file synced once. Safetensors:
///       one more for objects, if any; and one more when a tensor has several writers: such tensors are read once for
///       their checksums, each by one rank. A box is one write for each run of it that is contiguous in its tensor.
///       Both: O(boxes of all ranks · log) on every rank to plan. Memory: `saving.memory_bytes` per rank.
/// Source: torch.distributed.checkpoint.save
save_report save(const std::filesystem::path& destination, const const_held_state& held, communicator_ref comm,
                 const rank_save_options& options = {});

/// A save that goes on in the background. Move-only.
class save_in_progress {
 public:
  save_in_progress(save_in_progress&&) noexcept;
  save_in_progress& operator=(save_in_progress&&) noexcept;
  /// Waits.
  ~save_in_progress();

  /// True when `wait` would not block.
  bool done() const;
  /// Blocks until the save has come to its end on this rank; the outcome, the same on every rank. May be called again.
  const save_report& wait();

  struct state;

 private:
  friend result<save_in_progress> start_save(const std::filesystem::path& destination, const const_held_state& held,
                                             communicator_ref comm, const rank_save_options& options);
  explicit save_in_progress(std::unique_ptr<state> made);
  std::unique_ptr<state> state_;
};

/// Collective; blocks until this rank's part is planned and what it will write is copied, so that the tensors may
/// change again. Everything else that `save` does goes on in a thread of each rank.
///
/// The communicator belongs to the save until `wait` returned on this rank: give it one of its own (a subgroup, a
/// second thread_group, a duplicated MPI communicator), or make no call over it meanwhile. It outlives what is
/// returned, and must allow calls from another thread.
///
/// With a `staging_pool` in the options the copies lie in memory that earlier saves have used, and a save that the pool
/// has no room for waits or is refused (`staging_pool_options::when_full`). The pool's memory and place are free again
/// when the save has ended on this rank, whether anybody waits for it or not.
/// \errors the first of those that `save` reports before a file exists; errc::no_memory for the copies, naming sizes
///         where it is the pool's bound; errc::deadline_exceeded and errc::cancelled, also while it waits for the pool;
///         errc::invalid_argument (ranks that share a pool); the same on every rank. What comes later is in the report
///         of `wait`.
/// Cost: as `save`; memory for what this rank writes (not for replicas that others write).
/// Source: torch.distributed.checkpoint.async_save
result<save_in_progress> start_save(const std::filesystem::path& destination, const const_held_state& held,
                                    communicator_ref comm, const rank_save_options& options = {});

}  // namespace shardmesh
