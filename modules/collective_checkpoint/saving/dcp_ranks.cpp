// SPDX-License-Identifier: Apache-2.0
// A DCP folder that many ranks write: each rank writes a file of its own. Rank 0 has the work of all ranks, and every
// other rank has its share: the places in its file follow from the share alone.
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.dcp;
import shardmesh.torch_file;
import :rank_writer;
import :save_assignment;

namespace shardmesh {
namespace {

class dcp_ranks final : public rank_writer {
 public:
  explicit dcp_ranks(const rank_write_request& request) : request_(request), work_(*request.work) {}

  std::vector<error> find_problems() const override {
    std::vector<error> problems = find_path_conflicts(work_.tensors, work_.objects);
    const auto check_name = [&](const std::string& key) {
      if (auto problem = torch_file::problem_of_name(key)) problems.push_back(*std::move(problem));
    };
    for (const output_tensor& tensor : work_.tensors) check_name(tensor.key);
    for (const output_object& object : work_.objects) check_name(object.key);
    for (const output_tensor& tensor : work_.tensors)
      if (auto can = torch_file::tensor_pickle(tensor.type, tensor.bytes.from.global_shape()); !can)
        problems.push_back(std::move(can).error().with_key(tensor.key));
    return problems;
  }

  bool needs_notes() const override { return !request_.previous.empty(); }

  // Finds the chunks of this rank that the previous checkpoint holds. The note numbers the chunks of this rank's share.
  result<std::vector<std::byte>> note_for_plan(const item_run_options& run) override {
    SHARDMESH_TRY(previous_, dcp::previous_checkpoint::open(request_.previous, request_.destination));
    SHARDMESH_TRY(unchanged_, previous_->find_unchanged(work_.tensors, work_.source, request_.rank, run));
    if (request_.rank == 0) return std::vector<std::byte>{};
    detail::wire_writer note;
    note.digest(previous_->digest());
    note.number(static_cast<std::int64_t>(unchanged_.size()));
    for (const std::int64_t chunk : unchanged_) note.number(chunk);
    return std::move(note).take();
  }

  result<std::vector<error>> plan(const agreement_notes& told) override {
    if (!previous_) return std::vector<error>{};
    if (request_.rank == 0) SHARDMESH_TRY(take_unchanged(told));
    SHARDMESH_TRY(referred_, previous_->items_of(work_.tensors, unchanged_));
    drop_unchanged_sources();
    return std::vector<error>{};
  }

  result<staged_output> make(const output_options& options) override {
    SHARDMESH_TRY(staged_output output, staged_output::directory(request_.destination, options));
    // For all ranks, before any of them writes.
    SHARDMESH_TRY(output.reserve(dcp::data_bytes_of(work_.tensors, referred_)));
    return output;
  }

  // Rank 0 computes the places of all items, and every other rank those in its own file, with the same result.
  result<std::vector<std::byte>> write(staged_output& output, const item_run_options& run) override {
    files_.emplace(output, request_.rank, referred_);
    for (std::size_t i = 0; i < work_.objects.size(); ++i) {
      SHARDMESH_TRY(dcp::item_place at, files_->place(work_.objects[i].rank, work_.object_lengths[i]));
      if (work_.object_indices[i] >= 0) {
        const std::vector<std::byte>& archive = request_.archives[static_cast<std::size_t>(work_.object_indices[i])];
        SHARDMESH_TRY(files_->write_archive(work_.objects[i].rank, at, archive));
      }
      object_places_.push_back(std::move(at));
    }
    for (output_tensor& tensor : work_.tensors)
      if (auto placed = files_->place_tensor(tensor); !placed) return std::move(placed).error().with_key(tensor.key);
    SHARDMESH_TRY(files_->write_tensors(work_.tensors, work_.source, run));
    return encode(files_->ranges());
  }

  result<void> finish(staged_output& output, const agreement_notes& written, const agreement_notes&) override {
    SHARDMESH_TRY(std::vector<checksum_range> ranges, decode(written));
    std::ranges::move(files_->referred_ranges(), std::back_inserter(ranges));
    std::vector<dcp::item_place>& places = files_->places();
    places.insert(places.end(), object_places_.begin(), object_places_.end());
    SHARDMESH_TRY(
        dcp::finish_folder(output, work_.tensors, work_.objects, places, dcp::new_extras(), std::move(ranges)));
    return previous_ ? previous_->check_unchanged(referred_) : result<void>();
  }

  std::int64_t data_bytes() const override { return files_->data_bytes(); }
  std::int64_t referred_bytes() const override { return files_->referred_bytes(); }
  std::int64_t files() const override { return files_->files(); }

 private:
  // Rank 0: adds the unchanged chunks of the other ranks, as numbers over the chunks of all ranks.
  result<void> take_unchanged(const agreement_notes& told) {
    std::vector<std::vector<std::int64_t>> shares(told.size());  // per rank, the numbers of its chunks
    std::int64_t number = 0;
    for (const output_tensor& tensor : work_.tensors)
      for (const output_chunk& chunk : tensor.chunks) shares[static_cast<std::size_t>(chunk.rank)].push_back(number++);
    for (std::size_t rank = 1; rank < told.size(); ++rank) {
      detail::wire_reader in(told[rank]);
      if (in.digest() != previous_->digest())
        return fail(errc::disagreement, "ranks read different records of the previous checkpoint")
            .with_file(request_.previous.string())
            .with_rank(0)
            .with_rank(static_cast<std::int32_t>(rank))
            .with_hint("save to a file system that shows every rank the same files, or save without `previous`");
      const std::vector<std::int64_t>& share = shares[rank];
      const std::size_t count = in.count();
      for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t chunk = in.in_range(0, std::ssize(share) - 1);
        if (!in.ok()) return no_sense(rank);
        unchanged_.push_back(share[static_cast<std::size_t>(chunk)]);
      }
      if (!in.finished()) return no_sense(rank);
    }
    return {};
  }

  // Empties the views of chunks that this rank does not write, so that `start_save` does not copy them.
  void drop_unchanged_sources() {
    std::int64_t number = 0;
    for (const output_tensor& tensor : work_.tensors)
      for (const output_chunk& chunk : tensor.chunks) {
        if (!referred_.contains(number++) || chunk.rank != request_.rank) continue;
        tensor.bytes.from.overlapping(chunk.where, [&](const fragment& held) {
          const_tensor_view& view = work_.source.views[static_cast<std::size_t>(held.slot)];
          view.sizes = extents::filled(1, 0);
          view.strides = extents::filled(1, 1);
          return true;
        });
      }
  }

  static std::vector<std::byte> encode(std::span<const checksum_range> ranges) {
    detail::wire_writer out;
    out.number(static_cast<std::int64_t>(ranges.size()));
    for (const checksum_range& range : ranges) {
      out.number(range.offset);
      out.number(range.length);
      out.text(range.digits);
    }
    return std::move(out).take();
  }

  static result<std::vector<checksum_range>> decode(const agreement_notes& notes) {
    std::vector<checksum_range> ranges;
    for (std::size_t rank = 0; rank < notes.size(); ++rank) {
      detail::wire_reader in(notes[rank]);
      const std::size_t count = in.count();
      for (std::size_t i = 0; i < count && in.ok(); ++i) {
        checksum_range range{dcp::file_name(static_cast<std::int32_t>(rank)), in.number(), in.number(), {}};
        range.digits = in.text();
        ranges.push_back(std::move(range));
      }
      if (!in.finished()) return no_sense(rank);
    }
    return ranges;
  }

  rank_write_request request_;
  save_assignment& work_;
  std::optional<dcp::previous_checkpoint> previous_;
  std::vector<std::int64_t> unchanged_;  // numbers of chunks in `work_`
  dcp::referred_items referred_;
  std::optional<dcp::rank_files> files_;
  std::vector<dcp::item_place> object_places_;
};

}  // namespace

std::unique_ptr<rank_writer> dcp_rank_writer(const rank_write_request& request) {
  return std::make_unique<dcp_ranks>(request);
}

}  // namespace shardmesh
