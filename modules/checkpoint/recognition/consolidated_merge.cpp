// SPDX-License-Identifier: Apache-2.0
// The entries of all files with one key, as one entry.
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.torch_file;
import :consolidated_cut;
import :consolidated_name;
import :consolidated_reader;
import :same_elements;

namespace shardmesh {
namespace {

// True for statistics that each rank of the training kept of its own tokens.
bool is_statistic(std::string_view key) {
  return key.ends_with("_gate_stats_3E") || key.ends_with(".expert_activation_DE");
}

}  // namespace

std::size_t consolidated_reader::position_of(const std::string& key, std::size_t part) {
  const catalog& contents = contents_of(part);
  return static_cast<std::size_t>(contents.find(key) - contents.tensors.data());
}

result<void> consolidated_reader::merge_tensor(std::size_t index, const consolidated_sizes& sizes) {
  const tensor_entry& first = contents_of(0).tensors[index];
  std::vector<std::size_t> positions{index};
  for (std::size_t part = 1; part < part_count(); ++part) {
    positions.push_back(position_of(first.key, part));
    const tensor_entry& other = contents_of(part).tensors[positions.back()];
    if (auto same = check_same_form(first, other); !same) return at(std::move(same).error(), first.key, part);
  }
  auto cut = cut_of(first.key, first.shape, sizes);
  if (cut && !*cut) return merge_copies(positions);
  // Such an entry has no shape that `cut_of` could judge.
  if (!first.opaque_type.empty() || first.chunk_count != 1)
    return at(fail(errc::unsupported, "a part that is not one plain tensor cannot be merged"), first.key, 0);
  if (!cut) return at(std::move(cut).error(), first.key, 0);
  return merge_parts(positions, **cut);
}

result<void> consolidated_reader::check_same_form(const tensor_entry& a, const tensor_entry& b) {
  const std::string first = name_of(0);
  if (a.opaque_type != b.opaque_type || a.opaque_kind != b.opaque_kind || a.chunk_count != b.chunk_count)
    return fail(errc::disagreement, fmt::format("is of another kind than in {}", first));
  if (a.type != b.type)
    return fail(errc::dtype_mismatch, fmt::format("has another dtype than in {}", first))
        .with_values(std::string(name(a.type)), std::string(name(b.type)));
  if (a.shape != b.shape)
    return fail(errc::shape_mismatch, fmt::format("has another shape than in {}", first))
        .with_values(to_string(a.shape), to_string(b.shape));
  return {};
}

result<void> consolidated_reader::merge_parts(const std::vector<std::size_t>& positions, const consolidated_cut& cut) {
  const tensor_entry& first = contents_of(0).tensors[positions.front()];
  tensor_entry made;
  made.key = first.key;
  made.where = first.where;
  made.type = first.type;
  made.shape = cut.whole;
  made.properties = first.properties;
  made.properties.strides.reset();
  SHARDMESH_TRY(add_tensor(std::move(made)));
  // Blocks are runs of elements because they are along dimension 0, or because there is only one.
  std::int64_t row = 1;
  for (std::size_t d = 1; d < first.shape.rank(); ++d) row *= first.shape[d];
  for (std::size_t part = 0; part < part_count(); ++part) {
    const std::int32_t chunk = contents_of(part).tensors[positions[part]].first_chunk;
    std::int64_t begin = 0, whole_begin = 0;  // of the block along the dimension
    for (const std::int64_t length : cut.blocks) {
      box where = box::whole(first.shape);
      where.sizes[cut.dim] = length;
      where.offsets[cut.dim] = whole_begin + static_cast<std::int64_t>(part) * length;
      // A tensor without elements has one empty chunk.
      if (!where.is_empty() || contents_.tensors.back().chunk_count == 0)
        SHARDMESH_TRY(add_chunk(where, {part, positions[part], chunk, begin * row, where.sizes}));
      begin += length;
      whole_begin += length * count();
    }
  }
  return {};
}

result<void> consolidated_reader::merge_copies(const std::vector<std::size_t>& positions) {
  const tensor_entry& first = contents_of(0).tensors[positions.front()];
  for (std::size_t part = 1; part < part_count(); ++part) {
    auto same = are_equal(positions.front(), part, positions[part]);
    if (!same) return at(std::move(same).error(), first.key, part);
    if (*same) continue;
    if (is_statistic(first.key)) return add_each(positions, true);
    if (is_replicated_by_name(first.key)) {
      differing_.push_back(first.key);
      break;
    }
    return at(fail(errc::disagreement,
                   fmt::format("its values differ from those of {}, and no rule says how it is cut", name_of(0)))
                  .with_values("equal values in all files", "other values")
                  .with_hint("check that the files belong to one model, or open them one by one"),
              first.key, part);
  }
  return add_whole_tensor(first.key, first.where, 0, positions.front());
}

result<bool> consolidated_reader::are_equal(std::size_t index, std::size_t other, std::size_t other_index) {
  const tensor_entry &a = contents_of(0).tensors[index], &b = contents_of(other).tensors[other_index];
  if (!a.opaque_type.empty()) return have_same_content(part(0), {true, index}, part(other), {true, other_index});
  for (std::int32_t chunk = 0; chunk < a.chunk_count; ++chunk) {
    if (contents_of(0).chunk_box(a, a.first_chunk + chunk) != contents_of(other).chunk_box(b, b.first_chunk + chunk))
      return false;
    SHARDMESH_TRY(const auto left, part(0).open_chunk(a, a.first_chunk + chunk));
    SHARDMESH_TRY(const auto right, part(other).open_chunk(b, b.first_chunk + chunk));
    SHARDMESH_TRY(const bool same, have_same_elements(*left, *right));
    if (!same) return false;
  }
  return true;
}

result<void> consolidated_reader::merge_object(std::size_t index) {
  const object_entry& first = contents_of(0).objects[index];
  SHARDMESH_TRY(const object_value value, part(0).read_object(index));
  std::vector<std::size_t> positions{index};
  bool are_same = true;
  for (std::size_t other = 1; other < part_count(); ++other) {
    const catalog& contents = contents_of(other);
    positions.push_back(static_cast<std::size_t>(contents.find_object(first.key) - contents.objects.data()));
    SHARDMESH_TRY(const object_value found, part(other).read_object(positions.back()));
    const bool is_plain = !torch_file::has_unknown_values(value.json) && !torch_file::has_unknown_values(found.json);
    if (is_plain && (value.kind != found.kind || value.type != found.type || value.json != found.json))
      return at(fail(errc::disagreement, fmt::format("its value differs from that of {}", name_of(0)))
                    .with_hint("check that the files belong to one model, or open them one by one"),
                first.key, other);
    if (is_plain || !are_same) continue;
    SHARDMESH_TRY(are_same, have_same_content(part(0), {false, index}, part(other), {false, positions.back()}));
  }
  return are_same ? add_object(first.key, first.where, 0, index) : add_each(positions, false);
}

result<void> consolidated_reader::add_each(const std::vector<std::size_t>& positions, bool are_tensors) {
  for (std::size_t part = 0; part < part_count(); ++part) {
    const std::size_t index = positions[part];
    const std::string rank = fmt::format("rank_{}", part);
    const catalog& contents = contents_of(part);
    const std::string key = (are_tensors ? contents.tensors[index].key : contents.objects[index].key) + "." + rank;
    shardmesh::path where = are_tensors ? contents.tensors[index].where : contents.objects[index].where;
    where.push_back(rank);
    SHARDMESH_TRY(are_tensors ? add_whole_tensor(key, std::move(where), part, index)
                              : add_object(key, std::move(where), part, index));
  }
  return {};
}

void consolidated_reader::warn_of_copies() {
  if (differing_.empty()) return;
  warnings_.push_back(
      fail(errc::disagreement,
           fmt::format("the files have different copies of {}, and those of {} are read, as by Meta's programs: {}",
                       detail::counted(differing_.size(), "tensor"), name_of(0), name_list(differing_)))
          .with_file(path_.string())
          .with_hint("check that the files belong to one model"));
}

}  // namespace shardmesh
