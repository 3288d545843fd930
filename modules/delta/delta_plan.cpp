// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>
module shardmesh.delta;

import shardmesh.core;
import shardmesh.layout;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import shardmesh.torch_file;
import :block_codec;
import :block_grid;
import :delta_plan;
import :description;

namespace shardmesh::delta {
namespace {

bool is_dispute(const error& one) {
  return one.code == errc::disagreement;
}

class planner {
 public:
  planner(checkpoint_reader& base, checkpoint_reader& next, bool skip)
      : base_(base.contents()),
        reader_(next),
        next_(next.contents()),
        skip_(skip),
        has_disputes_(std::ranges::any_of(next.warnings(), is_dispute)) {}

  result<delta_plan> run(std::int64_t block_bytes) {
    SHARDMESH_TRY(check_distinct_keys(next_, "two entries of the new checkpoint have the same name"));
    made_.described.block_bytes = block_bytes;
    for (const tensor_entry& tensor : next_.tensors) add(tensor);
    for (std::size_t i = 0; i < next_.objects.size(); ++i) add_object(i);
    for (file_text text : next_.texts) {
      text.file = -1;
      made_.described.texts.push_back(std::move(text));
    }
    if (!problems_.empty()) return fail_all(std::move(problems_));
    made_.notes = reader_.notes();
    for (const error& warning : reader_.warnings()) made_.notes.push_back(to_string(warning));
    if (!lost_keys_.empty())
      made_.notes.push_back(
          fmt::format("keys that only Python has become texts in the paths of {}", name_list(lost_keys_)));
    if (!skipped_.empty())
      made_.notes.push_back(fmt::format("left out, because a delta cannot hold them: {}", name_list(skipped_)));
    return std::move(made_);
  }

 private:
  // Why a delta cannot hold the tensor; nothing if it can.
  std::optional<error> problem_of(const tensor_entry& tensor) const {
    if (tensor.opaque_type.empty()) {
      if (has_block_elements(tensor.type)) return std::nullopt;
      return fail(errc::unsupported, "a delta cannot hold elements of this dtype")
          .with_values("whole bytes", std::string(name(tensor.type)));
    }
    const bool is_whole =
        tensor.chunk_count == 1 && next_.chunk_box(tensor, tensor.first_chunk) == box::whole(tensor.shape);
    if (is_whole) return std::nullopt;
    if (tensor.chunk_count == 0)  // a .pt file has no archive of it
      return fail(errc::unsupported,
                  fmt::format("a {} without an archive of its own cannot be written", tensor.opaque_kind))
          .with_values("", tensor.opaque_type)
          .with_hint("convert the checkpoint to DCP first, or pass skip_unsupported to leave it out");
    return fail(errc::unsupported, fmt::format("a sharded {} cannot be written", tensor.opaque_kind))
        .with_values("", tensor.opaque_type);
  }

  // Leaves an entry out, or makes a problem of it.
  void refuse(error why, const std::string& key, std::int64_t& skipped) {
    if (skip_) {
      skipped_.push_back(escaped(key));
      ++skipped;
      return;
    }
    if (why.hint.empty()) why.hint = "pass skip_unsupported to leave it out";
    problems_.push_back(std::move(why).with_key(key).with_file(reader_.path().string()));
  }

  // Why the tensor cannot be read, if the ranks saved different values of it. Writing would name the first one alone.
  std::optional<error> dispute_of(const tensor_entry& tensor) {
    if (!has_disputes_) return std::nullopt;
    for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk) {
      if (next_.chunk_places[static_cast<std::size_t>(chunk)].file >= 0) continue;
      auto opened = reader_.open_chunk(tensor, chunk);
      if (!opened && is_dispute(opened.error())) return std::move(opened).error();
    }
    return std::nullopt;
  }

  void add(const tensor_entry& tensor) {
    if (auto why = dispute_of(tensor)) {
      problems_.push_back(*std::move(why));
      return;
    }
    if (auto why = problem_of(tensor)) {
      refuse(*std::move(why), tensor.key, made_.skipped_tensors);
      return;
    }
    if (!is_covered(tensor)) return;
    described_tensor one;
    one.entry = tensor;
    one.entry.first_chunk = one.entry.chunk_count = 0;
    delta_plan::source from{&tensor, nullptr};
    if (tensor.opaque_type.empty()) {
      const tensor_entry* const old = base_.find(tensor.key);
      one.has_base =
          old != nullptr && old->type == tensor.type && old->shape == tensor.shape && old->opaque_type.empty();
      if (one.has_base) from.base = old;
      one.grid = grid_of(tensor.type, tensor.shape, made_.described.block_bytes);
    } else {
      one.archive.emplace();
    }
    note_lost_keys(tensor.key, tensor.where);
    made_.described.tensors.push_back(std::move(one));
    made_.sources.push_back(from);
  }

  bool is_covered(const tensor_entry& tensor) {
    const auto held = next_.distribution_of(tensor);
    if (!held) {
      problems_.push_back(error(held.error()).with_file(reader_.path().string()));
      return false;
    }
    const cover_report cover = check_cover(*held);
    for (const cover_problem& problem : cover.problems)
      problems_.push_back(to_error(problem).with_key(tensor.key).with_file(reader_.path().string()));
    return cover.ok();
  }

  void add_object(std::size_t index) {
    const object_entry& object = next_.objects[index];
    if (object.hidden_tensors > 0) {
      refuse(fail(errc::unsupported, fmt::format("an object with {} inside cannot be written",
                                                 shardmesh::detail::counted(object.hidden_tensors, "tensor"))),
             object.key, made_.skipped_objects);
      return;
    }
    note_lost_keys(object.key, object.where);
    made_.objects.push_back(index);
  }

  void note_lost_keys(const std::string& key, const path& where) {
    for (const path_key& step : where)
      if (!step.is_index() && step.is_python() && !torch_file::json_of_key(step)) {
        lost_keys_.push_back(escaped(key));
        return;
      }
  }

  const catalog& base_;
  checkpoint_reader& reader_;
  const catalog& next_;
  bool skip_, has_disputes_;
  delta_plan made_;
  std::vector<error> problems_;
  std::vector<std::string> lost_keys_, skipped_;
};

}  // namespace

result<delta_plan> plan_delta(checkpoint_reader& base, checkpoint_reader& next, std::int64_t block_bytes,
                              bool skip_unsupported) {
  base.identify_opaque_tensors();
  next.identify_opaque_tensors();
  if (!next.problems().empty()) return fail_all(next.problems());
  return planner(base, next, skip_unsupported).run(block_bytes);
}

}  // namespace shardmesh::delta
