// SPDX-License-Identifier: Apache-2.0
// `save` on many ranks: each rank writes its own file of one DCP folder, or its part of safetensors files that the
// ranks share. The destination appears whole or not at all. Saving from one process is in room checkpoint; loading on
// many ranks is in load.
export module shardmesh.collective_checkpoint:save;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.comm;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import :save_plan_cache;
import :staging_pool;

export namespace shardmesh {

/// The phase that a rank is about to begin.
enum class save_phase : std::uint8_t {
  describe,  // send the description of its state to the others
  stage,     // make the folder (rank 0) or find it
  write,     // write its bytes
  finish,    // report that its bytes are on the disk
  commit,    // rank 0: write the metadata and put the destination in place; the others wait for it
};

/// The options of `save` and `start_save` on many ranks. The format, the choice of entries, `overwrite`, and `durable`
/// are the same on every rank (errc::disagreement).
struct rank_save_options {
  target_format format = target_format::dcp;  // dcp, safetensors or hf
  selection_options selection{};              // chooses, renames and casts entries, as in `convert`
  std::int64_t max_shard_bytes = std::int64_t{5} * 1000 * 1000 * 1000;  // hf: of one file
  bool skip_objects = false;                                            // save the tensors only
  /// For an object whose values differ between ranks. False: an error that names both ranks. True: the value of the
  /// lowest rank is written.
  bool lowest_rank_objects = false;
  // As in save_options. `memory_bytes` is per rank. `within` and `cancel` bound the whole save, including the wait for
  // other ranks.
  bool overwrite = false;
  bool durable = true;
  std::int64_t memory_bytes = default_memory_bytes;
  int threads = 0;
  time_limit within{};
  std::stop_token cancel{};
  std::function<void(std::int64_t bytes)> progress{};
  commit_hooks hooks{};
  std::filesystem::path previous{};  // the same on every rank
  /// Called on this rank before each phase. An error fails the save on every rank; in `commit` only rank 0's error
  /// does.
  std::function<result<void>(save_phase)> before{};
  // Of this rank: the destination of `start_save`'s copies. None: `start_save` allocates memory.
  staging_pool staging{};
  // Of this rank: the plan of the latest DCP save, for saves that repeat it. On every rank, or on none.
  save_plan_cache plans{};

  /// Returns the options of this rank's writer.
  save_options saving() const {
    save_options made = detail::saving_of(*this);
    made.previous = previous;
    return made;
  }
};

/// Saves the state of all ranks together as one checkpoint. Collective; blocks. If several ranks hold a box, the one
/// with the least to write writes it; boxes with one holder are dealt out first, then the others, the largest first.
/// The lowest rank that has an object writes it. After all ranks have reported that their bytes are on the disk, rank 0
/// writes the metadata and puts the checkpoint in place in one step.
///
/// As DCP, each rank writes its own file (`__RANK_0.distcp`), which PyTorch's `torch.distributed.checkpoint.load`
/// reads. As safetensors (one file, or a Hugging Face folder), tensors are whole: every rank writes its boxes to their
/// places in files that all ranks share. The result equals, byte for byte, what `convert` makes of the DCP folder of
/// the same state. No rank holds more than its own part and `memory_bytes`.
///
/// \param destination  the same path on every rank, of one file system that all ranks see
/// \param held         this rank's part. Its memory should not change until the call returns: the checkpoint holds the
///                     bytes that are there when a piece is written, with the checksum of exactly these bytes.
/// \returns the same outcome on every rank; counts are of the whole save
/// \errors the same on every rank. Before a file exists, one problem for each key, of which the first 100 are kept:
///         errc::shape_mismatch, errc::dtype_mismatch, errc::out_of_bounds, errc::unsupported (memory that no backend
///         reaches, a dtype that PyTorch lacks, an opaque object that is not an archive, entries that safetensors
///         cannot hold, for safetensors an object with tensors inside, or a format that ranks cannot write together),
///         errc::duplicate_key, errc::disagreement (ranks contradict each other about a key, the destination, or the
///         options), errc::invalid_argument (a rule of the selection that matches no key), errc::overlap and errc::gap
///         naming key, ranks and boxes; errc::destination_exists. Later, naming the rank: errc::io, errc::no_space;
///         errc::cancelled, errc::deadline_exceeded and those of the communicator, also when a rank is lost. After an
///         error the destination is unchanged, and the surviving ranks remove the staged files. If a rank is lost while
///         rank 0 puts the folder in place, the new folder may be there, whole; the error says so. With `previous`,
///         also those of `dcp::previous_checkpoint`: on every rank, those of the lowest rank that has one.
/// Cost: DCP: five agreements (`agree`), in which rank 0 also sends a path and the report. Besides these, rank 0 gets one
///       description from each rank (a path, a shape, and 2·rank numbers per box) and about 40 bytes per chunk written,
///       and sends each rank the list of its boxes to write. Rank 0 plans in O(boxes of all ranks · log), and every
///       other rank in O(its own boxes): see docs/scale.md. With `plans`, a save that repeats the one before has neither
///       descriptions nor lists. Each byte is written once, and each file synced once.
///       Safetensors: five rounds, one more if there are objects, and one more if a tensor has several
///       writers: one rank reads such a tensor back for its checksum. One round carries the descriptions to all ranks,
///       and every rank plans. A box is one write per run that is contiguous in its tensor. Memory: `memory_bytes` per
///       rank. With `previous`: one more round, every rank reads the description of the previous checkpoint, and chunks
///       that it holds are hashed first.
/// Source: torch.distributed.checkpoint.save
result<save_report> save(const std::filesystem::path& destination, const const_local_state& held, communicator_ref comm,
                         const rank_save_options& options = {});

/// A save that runs in the background. Move-only.
class save_in_progress {
 public:
  save_in_progress(save_in_progress&&) noexcept;
  save_in_progress& operator=(save_in_progress&&) noexcept;
  /// Waits for the save.
  ~save_in_progress();

  /// True if `wait` would not block.
  bool done() const;
  /// Blocks until the save has ended on this rank. Returns the outcome, the same on every rank. May be called again.
  const result<save_report>& wait();

  struct state;

 private:
  friend result<save_in_progress> start_save(const std::filesystem::path& destination, const const_local_state& held,
                                             communicator_ref comm, const rank_save_options& options);
  explicit save_in_progress(std::unique_ptr<state> made);
  std::unique_ptr<state> state_;
};

/// Plans this rank's part and copies what it will write; a thread of each rank does the rest of `save`. Collective;
/// blocks until the copies are made. After that the tensors may change again.
///
/// The communicator belongs to the save until `wait` has returned on this rank. Give the save a communicator of its own
/// (a subgroup, a second thread_group, a duplicated MPI communicator), or make no call over it until then. It must
/// outlive the returned object, and must allow calls from another thread.
///
/// With a `staging_pool` in the options, the copies lie in memory that earlier saves have used. A save that the pool
/// has no room for waits or is refused (`staging_pool_options::when_full`). The pool's memory and place become free
/// when the save has ended on this rank, even if no caller waits for it.
/// \errors those of `save` before a file exists, except errc::destination_exists; errc::no_memory for the copies,
///         naming sizes if the pool's bound is the cause; errc::deadline_exceeded and errc::cancelled, also while the
///         save waits for the pool; errc::invalid_argument (ranks that share a pool); the same on every rank. `wait`
///         returns all others.
/// Cost: as `save`, and one more round; memory for what this rank writes (not for replicas that others write, nor for
///       chunks of the `previous` checkpoint, which the call hashes instead).
/// Source: torch.distributed.checkpoint.async_save
result<save_in_progress> start_save(const std::filesystem::path& destination, const const_local_state& held,
                                    communicator_ref comm, const rank_save_options& options = {});

}  // namespace shardmesh
