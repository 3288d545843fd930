// SPDX-License-Identifier: Apache-2.0
// Not exported: rank_writer, a format's part in each phase of a save by many ranks. Every rank has one. The phases and
// their rounds are in rank_save; save_assignment decides which rank writes which data.
module shardmesh.collective_checkpoint:rank_writer;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import shardmesh.transfer;
import shardmesh.storage;
import shardmesh.checkpoint;
import :save_assignment;

namespace shardmesh {

// The input of every format's writer.
struct rank_write_request {
  std::filesystem::path destination;
  std::int32_t rank = 0, ranks = 1;
  save_assignment* work = nullptr;                   // outlives the writer; see `is_planned_by_root`
  std::span<const std::vector<std::byte>> archives;  // of this rank's objects
  std::int64_t max_shard_bytes = 0;                  // of a Hugging Face folder
  std::filesystem::path previous{};                  // DCP: the checkpoint to refer to; empty: none
};

// Returns whether rank 0 alone plans a save in this format, and the work of another rank is its share. For the other
// formats, every rank has the work of all.
inline bool is_planned_by_root(target_format to) {
  return to == target_format::dcp;
}

// Every rank makes every call, in this order, except where a comment names rank 0.
class rank_writer {
 public:
  virtual ~rank_writer() = default;

  // Rank 0, if it alone plans: returns the problems of the whole work that need no notes.
  virtual std::vector<error> find_problems() const { return {}; }
  // Returns whether the plan depends on data of other ranks (objects that they write, chunks that have not changed);
  // the same on every rank. If so, `note_for_plan` returns this rank's.
  virtual bool needs_notes() const { return false; }
  virtual result<std::vector<std::byte>> note_for_plan(const item_run_options&) { return std::vector<std::byte>{}; }
  // Plans the place of everything. `told`: the ranks' results of `note_for_plan`; if rank 0 plans, on rank 0 alone.
  // Returns the same problems on every rank that gets the notes.
  virtual result<std::vector<error>> plan(const agreement_notes& told) = 0;

  // Rank 0: makes the destination under a temporary name, with the files that ranks share. The other ranks join it.
  virtual result<staged_output> make(const output_options& options) = 0;
  // Writes this rank's bytes, and returns a note about them for rank 0.
  virtual result<std::vector<std::byte>> write(staged_output& output, const item_run_options& run) = 0;
  // Returns whether some data can be computed only after all ranks have written; the same on every rank. If so,
  // `look_again` returns it.
  virtual bool looks_again() const { return false; }
  virtual result<std::vector<std::byte>> look_again(staged_output&, const item_run_options&) {
    return std::vector<std::byte>{};
  }
  // Rank 0: completes the destination before the commit. `written` and `seen`: the ranks' notes of `write` and
  // `look_again`.
  virtual result<void> finish(staged_output& output, const agreement_notes& written, const agreement_notes& seen) = 0;
  // Rank 0, after the commit: replaces the companion files beside the destination.
  virtual result<void> finish_beside(std::vector<std::string>&) { return {}; }

  // Rank 0, after `write`: return the element bytes and the number of files of the whole save.
  virtual std::int64_t data_bytes() const = 0;
  virtual std::int64_t referred_bytes() const { return 0; }  // the part of `data_bytes` that is not written
  virtual std::int64_t files() const = 0;
  // Notes for the user.
  std::vector<std::string> notes;
};

// Returns the error for a note that cannot be decoded.
inline error no_sense(std::size_t rank) {
  return fail(errc::bad_format, "a rank's report of what it wrote is malformed")
      .with_rank(static_cast<std::int32_t>(rank));
}

// Returns the writer of a format; null if several ranks cannot write the format together.
std::unique_ptr<rank_writer> make_rank_writer(target_format to, const rank_write_request& request);

std::unique_ptr<rank_writer> dcp_rank_writer(const rank_write_request& request);
// Writes one file or a folder.
std::unique_ptr<rank_writer> safetensors_rank_writer(const rank_write_request& request, bool folder);

}  // namespace shardmesh
