// SPDX-License-Identifier: Apache-2.0
// Safetensors files that many ranks write: all ranks share every file, and each writes its boxes to their places in the
// tensors. The checksum of a tensor with several writers cannot be combined from those of its parts. After all ranks
// have written, each rank reads its share of such tensors back.
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.safetensors;
import shardmesh.torch_file;
import :box_writer;
import :object_json;
import :rank_writer;
import :save_assignment;

namespace shardmesh {
namespace {

constexpr std::int64_t read_bytes = std::int64_t{1} << 20;

class safetensors_ranks final : public rank_writer {
 public:
  safetensors_ranks(const rank_write_request& request, bool folder) : request_(request), work_(*request.work) {
    format_.folder = folder;
    format_.max_shard_bytes = request.max_shard_bytes;
  }

  bool needs_notes() const override { return !work_.objects.empty(); }

  result<std::vector<std::byte>> note_for_plan(const item_run_options&) override {
    detail::wire_writer note;
    for (std::size_t i = 0; i < work_.objects.size(); ++i) {
      if (work_.object_indices[i] < 0) continue;
      auto json =
          json_of_archive(request_.archives[static_cast<std::size_t>(work_.object_indices[i])], work_.objects[i].key);
      if (!json) return std::move(json).error().with_key(work_.objects[i].key);
      note.number(static_cast<std::int64_t>(i));
      note.text(*json);
    }
    return std::move(note).take();
  }

  result<std::vector<error>> plan(const agreement_notes& told) override {
    std::vector<safetensors::tensor> tensors;
    for (const output_tensor& tensor : work_.tensors)
      tensors.push_back({tensor.key, tensor.type, tensor.bytes.from.global_shape()});
    std::vector<error> problems = safetensors::problems_of(tensors);
    for (error& problem : safetensors::problems_of_names(work_.objects)) problems.push_back(std::move(problem));
    if (!problems.empty()) return problems;
    SHARDMESH_TRY(take_objects(told));
    SHARDMESH_TRY(plan_, safetensors::planned_files::make(std::move(tensors), format_));
    SHARDMESH_TRY(plan_.lay_out({}, document_, request_.destination));
    deal_out_sums();
    return problems;
  }

  result<staged_output> make(const output_options& options) override {
    if (!format_.folder) {
      SHARDMESH_TRY(beside_, safetensors::objects_copy::look(request_.destination, document_, options));
    }
    SHARDMESH_TRY(staged_output output, format_.folder ? staged_output::directory(request_.destination, options)
                                                       : staged_output::file(request_.destination, options));
    SHARDMESH_TRY(output.reserve(checked_add(plan_.file_bytes(), static_cast<std::int64_t>(document_.size()))
                                     .value_or(std::numeric_limits<std::int64_t>::max())));
    if (beside_) SHARDMESH_TRY(beside_->stage());
    SHARDMESH_TRY(plan_.add_to(output));
    return output;
  }

  result<std::vector<std::byte>> write(staged_output& output, const item_run_options& run) override {
    if (request_.rank != 0) SHARDMESH_TRY(plan_.add_to(output));
    std::vector<placed_part> parts;
    std::vector<std::pair<std::size_t, std::size_t>> whole;  // tensor, part
    std::vector<tensor_transfer> transfers;
    std::vector<std::string> keys;
    for (std::size_t t = 0; t < work_.tensors.size(); ++t) {
      output_tensor& tensor = work_.tensors[t];
      const extents& shape = tensor.bytes.from.global_shape();
      const safetensors::tensor_place at = plan_.place_of(t);
      distribution_builder mine(shape, owner_space::items);
      const std::size_t before = parts.size();
      for (const output_chunk& chunk : tensor.chunks) {
        if (chunk.rank != request_.rank || chunk.where.is_empty()) continue;
        mine.add(static_cast<std::int32_t>(at.file), static_cast<std::int32_t>(parts.size()), chunk.where.offsets,
                 chunk.where.sizes);
        parts.push_back({static_cast<std::int32_t>(at.file), at.begin, tensor.type, shape, chunk.where});
      }
      if (parts.size() == before) continue;
      if (is_of_one_rank(t)) whole.emplace_back(t, before);
      auto to = mine.finish();
      if (!to) return std::move(to).error().with_key(tensor.key);
      transfers.push_back({tensor.bytes.from, *std::move(to), tensor.bytes.from_type, tensor.type});
      keys.push_back(tensor.key);
    }
    box_writer writer(output, std::move(parts));
    SHARDMESH_TRY(write_items(transfers, keys, work_.source, writer, run));
    SHARDMESH_TRY(writer.check_complete());
    detail::wire_writer note;
    for (const auto& [tensor, part] : whole) tell_sum(note, tensor, writer.digest(part));
    return std::move(note).take();
  }

  bool looks_again() const override { return sums_are_read_; }

  result<std::vector<std::byte>> look_again(staged_output& output, const item_run_options& run) override {
    std::vector<digest128> sums(mine_to_sum_.size());
    const int threads =
        static_cast<int>(std::clamp<std::int64_t>(run.memory_bytes / read_bytes, 1, thread_count(run.threads)));
    SHARDMESH_TRY(
        parallel_for(threads, static_cast<std::int64_t>(mine_to_sum_.size()), [&](std::int64_t i) -> result<void> {
          auto sum = read_sum(output, mine_to_sum_[static_cast<std::size_t>(i)], run);
          if (sum) sums[static_cast<std::size_t>(i)] = *sum;
          return sum ? result<void>{} : result<void>(std::move(sum).error());
        }));
    detail::wire_writer note;
    for (std::size_t i = 0; i < sums.size(); ++i) tell_sum(note, mine_to_sum_[i], sums[i]);
    return std::move(note).take();
  }

  result<void> finish(staged_output& output, const agreement_notes& written, const agreement_notes& seen) override {
    std::vector<std::optional<digest128>> found(work_.tensors.size());
    SHARDMESH_TRY(take_sums(written, found));
    SHARDMESH_TRY(take_sums(seen, found));
    std::vector<digest128> sums;
    for (std::size_t t = 0; t < found.size(); ++t) {
      if (!found[t] && plan_.bytes_of(t) > 0)
        return fail(errc::io, "internal: no rank knows its checksum").with_key(work_.tensors[t].key);
      sums.push_back(found[t].value_or(xxh3({})));
    }
    SHARDMESH_TRY(plan_.write_headers(output, sums));
    if (format_.folder) SHARDMESH_TRY(plan_.finish_folder(output, document_, {}));
    return beside_ ? beside_->prepare() : result<void>{};
  }

  result<void> finish_beside(std::vector<std::string>& notes) override {
    return beside_ ? beside_->commit(notes) : result<void>{};
  }

  std::int64_t data_bytes() const override { return plan_.data_bytes(); }
  std::int64_t files() const override { return static_cast<std::int64_t>(plan_.files().size()); }

 private:
  // Makes the document of all ranks' objects, in the order of the save.
  result<void> take_objects(const agreement_notes& told) {
    if (work_.objects.empty()) return {};
    std::vector<std::string> values(work_.objects.size());
    for (std::size_t rank = 0; rank < told.size(); ++rank) {
      detail::wire_reader in(told[rank]);
      while (in.ok() && !in.finished()) {
        const auto i = static_cast<std::size_t>(in.in_range(0, static_cast<std::int64_t>(values.size()) - 1));
        std::string json = in.text();
        if (in.ok()) values[i] = std::move(json);
      }
      if (!in.ok()) return no_sense(rank);
    }
    std::vector<output_object> objects = work_.objects;
    for (std::size_t i = 0; i < objects.size(); ++i) {
      if (values[i].empty()) return no_sense(static_cast<std::size_t>(objects[i].rank));
      objects[i].json = [&value = values[i]] { return result<std::string>(value); };
    }
    SHARDMESH_TRY(notes, safetensors::objects_not_held_whole(objects));
    SHARDMESH_TRY(document_, safetensors::format_objects(objects, work_.tensors));
    return {};
  }

  bool is_of_one_rank(std::size_t tensor) const { return work_.tensors[tensor].chunks.size() == 1; }

  // Deals out the tensors with several boxes that are read back: the largest first, to the rank with the least to read.
  void deal_out_sums() {
    std::vector<std::pair<std::int64_t, std::size_t>> left;
    for (std::size_t t = 0; t < work_.tensors.size(); ++t)
      if (!is_of_one_rank(t)) left.emplace_back(-plan_.bytes_of(t), t);
    sums_are_read_ = !left.empty();
    std::sort(left.begin(), left.end());
    std::vector<owner_id> all(static_cast<std::size_t>(request_.ranks));
    std::iota(all.begin(), all.end(), 0);
    load_balancer balance;
    for (const auto& [bytes, tensor] : left)
      if (balance.give(all, -bytes) == request_.rank) mine_to_sum_.push_back(tensor);
  }

  result<digest128> read_sum(const staged_output& output, std::size_t tensor, const item_run_options& run) const {
    const safetensors::tensor_place at = plan_.place_of(tensor);
    const std::int64_t total = plan_.bytes_of(tensor);
    std::vector<std::byte> piece(static_cast<std::size_t>(std::min(total, read_bytes)));
    xxh3_stream sum;
    for (std::int64_t done = 0; done < total;) {
      if (run.call.cancel.stop_requested()) return detail::limit_error(errc::cancelled, "save");
      const std::span<std::byte> now =
          std::span(piece).first(static_cast<std::size_t>(std::min(total - done, read_bytes)));
      SHARDMESH_TRY(output.read(static_cast<std::int32_t>(at.file), at.begin + done, now));
      sum.update(now);
      done += static_cast<std::int64_t>(now.size());
      if (run.progress) run.progress(0);
    }
    return sum.digest();
  }

  static void tell_sum(detail::wire_writer& note, std::size_t tensor, const digest128& sum) {
    note.number(static_cast<std::int64_t>(tensor));
    note.digest(sum);
  }

  result<void> take_sums(const agreement_notes& told, std::vector<std::optional<digest128>>& found) const {
    for (std::size_t rank = 0; rank < told.size(); ++rank) {
      detail::wire_reader in(told[rank]);
      while (in.ok() && !in.finished()) {
        const auto tensor = static_cast<std::size_t>(in.in_range(0, static_cast<std::int64_t>(found.size()) - 1));
        const digest128 sum = in.digest();
        if (in.ok()) found[tensor] = sum;
      }
      if (!in.ok()) return no_sense(rank);
    }
    return {};
  }

  rank_write_request request_;
  save_assignment& work_;
  safetensors::file_options format_;
  std::string document_;  // of the objects; empty if there are none
  safetensors::planned_files plan_;
  std::vector<std::size_t> mine_to_sum_;
  bool sums_are_read_ = false;
  std::optional<safetensors::objects_copy> beside_;
};

}  // namespace

std::unique_ptr<rank_writer> safetensors_rank_writer(const rank_write_request& request, bool folder) {
  return std::make_unique<safetensors_ranks>(request, folder);
}

}  // namespace shardmesh
