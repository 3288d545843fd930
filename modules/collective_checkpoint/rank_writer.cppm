// SPDX-License-Identifier: Apache-2.0
// Not exported: rank_writer: what a format does in the phases of a save by many ranks, on each of them. Not here: the
// phases and their rounds (save), who writes what (save_assignment).
module shardmesh.collective_checkpoint:rank_writer;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import shardmesh.transfer;
import shardmesh.storage;
import shardmesh.checkpoint;
import :save_assignment;

namespace shardmesh {

// What all formats are given.
struct rank_write_request {
  std::filesystem::path destination;
  std::int32_t rank = 0, ranks = 1;
  save_assignment* work = nullptr;                   // outlives the writer
  std::span<const std::vector<std::byte>> archives;  // of this rank's objects
  std::int64_t max_shard_bytes = 0;                  // of a Hugging Face folder
};

// Every call is made on every rank, in this order, unless it says otherwise.
class rank_writer {
 public:
  virtual ~rank_writer() = default;

  // Whether ranks have to know the objects that others write; the same on every rank. Then, what of them this one has.
  virtual bool asks_for_objects() const { return false; }
  virtual result<std::vector<std::byte>> tell_objects() { return std::vector<std::byte>{}; }
  // Where everything goes. `told`: what the ranks said of their objects. The same problems on every rank.
  virtual result<std::vector<error>> plan(const agreement_notes& told) = 0;

  // Rank 0: the destination under a temporary name, with the files that ranks share. Others join it.
  virtual result<staged_output> make(const output_options& options) = 0;
  // This rank's bytes, and what rank 0 is to know of them.
  virtual result<std::vector<std::byte>> write(staged_output& output, const item_run_options& run) = 0;
  // Whether something can only be known when the bytes of all ranks are there; the same on every rank. Then, that.
  virtual bool looks_again() const { return false; }
  virtual result<std::vector<std::byte>> look_again(staged_output&, const item_run_options&) {
    return std::vector<std::byte>{};
  }
  // Rank 0: what the destination lacks before it is committed; `written` and `seen` are what the ranks said.
  virtual result<void> finish(staged_output& output, const agreement_notes& written, const agreement_notes& seen) = 0;
  // Rank 0, after the commit: what lies beside the destination.
  virtual result<void> finish_beside(std::vector<std::string>&) { return {}; }

  // Of the whole save.
  virtual std::int64_t data_bytes() const = 0;
  virtual std::int64_t files() const = 0;
  // For the user.
  std::vector<std::string> notes;
};

// The error of a note that makes no sense.
inline error no_sense(std::size_t rank) {
  return fail(errc::bad_format, "what a rank says that it wrote makes no sense")
      .with_rank(static_cast<std::int32_t>(rank));
}

// The writer of a format; null: several ranks do not write it together.
std::unique_ptr<rank_writer> make_rank_writer(target_format to, const rank_write_request& request);

std::unique_ptr<rank_writer> dcp_rank_writer(const rank_write_request& request);
// One file, or a folder.
std::unique_ptr<rank_writer> safetensors_rank_writer(const rank_write_request& request, bool folder);

}  // namespace shardmesh
