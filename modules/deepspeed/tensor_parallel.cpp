// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <re2/re2.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.deepspeed;

import :tensor_parallel;

namespace shardmesh::deepspeed {
namespace {

using pattern_list = std::vector<std::unique_ptr<re2::RE2>>;

constexpr std::size_t most_patterns = 1000;
// Rules that cannot be followed: averages are not elements of any rank, and the other two need more than a dimension.
constexpr std::array<std::string_view, 3> not_followed{"parameter_to_average_patterns", "parameter_with_sub_params",
                                                       "affine_map"};

// Matches as Python's re.match does.
bool matches(const pattern_list& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const auto& pattern) {
    return pattern->Match(name, 0, name.size(), re2::RE2::ANCHOR_START, nullptr, 0);
  });
}

// A run of elements in a part's tensor that is a box of a rank's parameter.
struct placed_run {
  box where;
  chunk_piece from;
};

std::vector<placed_run> runs_of(composed_reader& reader, const planned_tensor& planned) {
  const auto chunk_of = [&](std::size_t part, std::size_t tensor) {
    return reader.part(part).contents().tensors[tensor].first_chunk;
  };
  std::vector<placed_run> made;
  if (planned.whole) {
    const auto [part, tensor] = *planned.whole;
    made.push_back({box::whole(planned.shape), {part, tensor, chunk_of(part, tensor), 0, planned.shape}});
  }
  std::int64_t at = 0;
  for (const flat_piece& piece : planned.pieces) {
    for (const flat_box& run : boxes_of_range(planned.shape, {at, piece.count}))
      made.push_back({run.where,
                      {piece.part, piece.tensor, chunk_of(piece.part, piece.tensor), piece.first + run.begin - at,
                       run.where.sizes}});
    at += piece.count;
  }
  return made;
}

// Returns the rows [begin, end) of a run. Their elements are also consecutive.
std::optional<placed_run> rows_of(const placed_run& run, std::int64_t begin, std::int64_t end) {
  placed_run made = run;
  const std::int64_t first = std::max(run.where.offsets[0], begin);
  const std::int64_t last = std::min(run.where.offsets[0] + run.where.sizes[0], end);
  if (first >= last) return std::nullopt;
  std::int64_t row = 1;
  for (std::size_t d = 1; d < run.where.sizes.rank(); ++d) row *= run.where.sizes[d];
  made.from.first += (first - run.where.offsets[0]) * row;
  made.where.offsets[0] = first;
  made.where.sizes[0] = made.from.sizes[0] = last - first;
  return made;
}

}  // namespace

struct tensor_rules::patterns {
  pattern_list replicated, row_parallel, vocabulary, two_parts;
};

result<tensor_rules> tensor_rules::read(const model_states& model) {
  tensor_rules made;
  auto found = std::make_shared<patterns>();
  const std::array<std::pair<std::string_view, pattern_list*>, 4> lists{
      {{"tp_replicated_parameter_patterns", &found->replicated},
       {"parameter_with_row_parallelism_patterns", &found->row_parallel},
       {"vocabulary_parameter_patterns", &found->vocabulary},
       {"parameter_with_2_sub_params_cat_dim_0", &found->two_parts}}};
  bool has_any = false;
  const auto& objects = model.file.reader->contents().objects;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    if (!begins_with(objects[i].where, {"universal_checkpoint_info"}) || objects[i].where.size() < 2) continue;
    const std::string name = key_text(objects[i].where[1]);
    if (std::find(not_followed.begin(), not_followed.end(), name) != not_followed.end()) {
      SHARDMESH_TRY(const auto value, model.file.reader->read_object(i));
      if (value.json != "[]" && value.json != "{}")
        made.reason_ = fmt::format("'{}' has rules that do not describe cuts", name);
    } else if (name == "original_vocab_size") {
      SHARDMESH_TRY(made.rows_, read_largest(model.file, i));
    }
    for (const auto& [known, patterns] : lists) {
      if (known != name || objects[i].where.size() != 2) continue;
      has_any = true;
      SHARDMESH_TRY(const auto texts, read_texts(model.file, i));
      if (texts.size() > most_patterns) made.reason_ = fmt::format("'{}' has {} patterns", name, texts.size());
      for (const std::string& text : std::span(texts).first(std::min(texts.size(), most_patterns))) {
        patterns->push_back(std::make_unique<re2::RE2>(text, re2::RE2::Quiet));
        if (!patterns->back()->ok())
          made.reason_ = fmt::format("'{}' has a pattern that is not supported, '{}'", name, escaped(text));
      }
    }
  }
  if (!has_any) made.reason_ = "no file says how to combine them";
  if (!found->vocabulary.empty() && !made.rows_) made.reason_ = "'original_vocab_size' is missing";
  made.patterns_ = std::move(found);
  return made;
}

merge_rule tensor_rules::rule_of(const std::string& name) const {
  merge_rule made;
  made.is_replicated = matches(patterns_->replicated, name);
  if (!made.is_replicated && matches(patterns_->two_parts, name))
    made.sub_parameters = 2;
  else if (!made.is_replicated && matches(patterns_->row_parallel, name))
    made.dim = 1;
  if (matches(patterns_->vocabulary, name)) made.rows = rows_;
  return made;
}

result<void> add_merged(composed_reader& reader, const std::string& key, shardmesh::path where,
                        std::span<const planned_tensor* const> ranks, const merge_rule& rule) {
  const planned_tensor& first = *ranks.front();
  const auto refuse = [&](const extents& found) {
    return fail(errc::shape_mismatch, "the shapes of the tensor-parallel ranks' parts do not match")
        .with_key(key)
        .with_file(reader.path().string())
        .with_values(fmt::format("{}, apart from dimension {}", to_string(first.shape), rule.dim), to_string(found));
  };
  tensor_entry entry;
  entry.key = key;
  entry.where = std::move(where);
  entry.type = first.type;
  entry.shape = first.shape;
  const std::size_t rank = first.shape.rank();
  if (!rule.is_replicated && rank <= rule.dim) return refuse(first.shape);
  std::vector<std::int64_t> begins{0};  // along the dimension
  for (const planned_tensor* part : ranks) {
    bool fits = part->shape.rank() == rank;
    for (std::size_t d = 0; fits && d < rank; ++d)
      fits = part->shape[d] == first.shape[d] || (d == rule.dim && !rule.is_replicated && rule.sub_parameters == 1);
    if (!fits || (rule.sub_parameters > 1 && part->shape[0] % rule.sub_parameters != 0)) return refuse(part->shape);
    const auto end =
        rule.is_replicated ? std::optional(begins.back()) : checked_add(begins.back(), part->shape[rule.dim]);
    if (!end) return refuse(part->shape);
    begins.push_back(*end);
  }
  if (!rule.is_replicated) entry.shape[rule.dim] = begins.back();
  const std::int64_t rows = rank > 0 ? std::min(entry.shape[0], rule.rows.value_or(entry.shape[0])) : 0;
  if (rank > 0) entry.shape[0] = rows;
  SHARDMESH_TRY(reader.add_tensor(std::move(entry)));
  for (std::size_t r = 0; r < (rule.is_replicated ? 1 : ranks.size()); ++r)
    for (const placed_run& run : runs_of(reader, *ranks[r])) {
      if (rank == 0) {
        SHARDMESH_TRY(reader.add_chunk(run.where, run.from));
        continue;
      }
      const std::int64_t height = ranks[r]->shape[0] / rule.sub_parameters;  // of this rank's part of a sub-parameter
      for (std::int64_t sub = 0; sub < rule.sub_parameters; ++sub) {
        auto part = rows_of(run, sub * height, (sub + 1) * height);
        if (!part) continue;
        if (!rule.is_replicated && rule.sub_parameters == 1) part->where.offsets[rule.dim] += begins[r];
        if (rule.sub_parameters > 1)
          part->where.offsets[0] +=
              static_cast<std::int64_t>(r) * height + sub * height * (static_cast<std::int64_t>(ranks.size()) - 1);
        part = rows_of(*part, 0, rows);
        if (part) SHARDMESH_TRY(reader.add_chunk(part->where, part->from));
      }
    }
  return {};
}

}  // namespace shardmesh::deepspeed
