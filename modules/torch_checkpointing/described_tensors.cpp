// SPDX-License-Identifier: Apache-2.0
// The part of folder_reader for described tensors: the boxes of all ranks, each from the first rank whose file exists.
module;
#include <fmt/core.h>
#include <restore_hint.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>
module shardmesh.torch_checkpointing;

import :folder_reader;
import :same_value;

namespace shardmesh::torch_checkpointing {

// A rank that the metadata names for a tensor, and the tensor in its file.
struct folder_reader::described_rank {
  const sharding& group;
  std::int32_t rank = 0;
  opened_part* part = nullptr;  // null: the rank has no file
  std::optional<std::size_t> index{};
  std::optional<std::size_t> object{};  // in place of the tensor
};

// The boxes of a tensor that were found so far, and the errors of boxes that no rank's file has held yet.
struct folder_reader::described_boxes {
  std::map<box, std::optional<holder>> found;
  std::vector<std::pair<box, inner_box>> pieces;
  std::map<box, error> waiting;
};

result<void> folder_reader::add_described(const item_metadata& item, const tensor_metadata& tensor,
                                          std::vector<opened_part>& parts, const std::vector<std::int32_t>& at) {
  const sharding& first = tensor.groups.front();
  tensor_entry entry;
  entry.where = tree_path{item.key};
  for (const path_key& step : tensor.where) entry.where.push_back(step);
  entry.key = dotted(entry.where);
  entry.type = first.type;
  entry.shape = first.shape;
  const std::string name = item.files.empty() ? "" : joined(tensor.where, 0), flat = dotted(tensor.where);
  SHARDMESH_TRY(const bool is_opaque, add_opaque(entry, tensor, parts, at, name));
  if (is_opaque) return {};
  described_boxes made;
  bool is_named = false;
  for (const sharding& group : tensor.groups)
    for (const std::int32_t rank : group.ranks) {
      SHARDMESH_TRY(budget_.build(16));
      const std::int32_t position = at[static_cast<std::size_t>(rank)];
      described_rank one{group, rank, position < 0 ? nullptr : &parts[static_cast<std::size_t>(position)]};
      if (one.part) {
        const auto stored = one.part->tensors.find(one.part->is_flat ? flat : name);
        if (stored != one.part->tensors.end())
          one.index = stored->second;
        else if (const auto object = one.part->objects.find(name); object != one.part->objects.end())
          one.object = object->second;
      }
      if (one.index) one.part->described.insert(*one.index);
      if (one.index && !is_named && !one.part->is_flat) {
        entry.where = part(one.part->number).contents().tensors[*one.index].where;
        is_named = true;
      }
      find_boxes(entry, item, one, made);
    }
  return add_boxes(entry, std::move(made));
}

void folder_reader::find_boxes(const tensor_entry& entry, const item_metadata& item, const described_rank& of,
                               described_boxes& made) {
  const std::vector<placed_box> boxes = of.group.boxes_of(of.rank);
  const auto missing = [&] {
    error problem = fail(errc::bad_format, of.part ? "the file lacks a tensor that the metadata names"
                                                   : "the file is missing, and no other rank holds this");
    return std::move(problem).with_key(entry.key).with_rank(of.rank).with_file(
        (path_ / item.files[static_cast<std::size_t>(of.rank)].name).string());
  };
  // add_rest reports an object in place of the tensor, except the placeholders of a rank without a part.
  const auto is_reported = [&] {
    if (of.index || !of.object) return false;
    const auto value = part(of.part->number).read_object(*of.object);
    if (!value) return true;
    const bool is_none_in_list = entry.where.back().is_index() && value->kind == "none";
    return !is_none_in_list && !(entry.where.size() == 1 && torch_file::is_empty_dict(value->json));
  };
  const bool has_object = is_reported();
  bool is_checked = false;
  for (const placed_box& one : boxes) {
    if (one.where.is_empty()) continue;
    if (const auto known = made.found.find(one.where); known != made.found.end()) {
      if (of.index && known->second) compare_replicas(entry, *known->second, {of.part->number, *of.index});
      continue;
    }
    if (!of.index) {
      if (!has_object) made.waiting.try_emplace(one.where, missing().with_box(one.where));
      continue;
    }
    if (!std::exchange(is_checked, true) && !check_local(entry, of.group, of.rank, boxes, *of.part, *of.index)) {
      made.found.emplace(one.where, std::nullopt);
      continue;
    }
    made.found.emplace(one.where, holder{of.part->number, *of.index});
    made.waiting.erase(one.where);
    made.pieces.push_back({one.where, {of.part->number, *of.index, {one.local_offsets, one.where.sizes}}});
  }
  if (entry.shape.rank() > 0 && box::whole(entry.shape).is_empty() && of.index && made.pieces.empty())
    made.pieces.push_back({box::whole(entry.shape), {of.part->number, *of.index, box::whole(entry.shape)}});
}

result<void> folder_reader::add_boxes(const tensor_entry& entry, described_boxes found) {
  for (auto& [where, problem] : found.waiting) problems_.push_back(std::move(problem));
  SHARDMESH_TRY(add_tensor(entry));
  for (const auto& [where, piece] : found.pieces) {
    auto done = add_chunk(where, {piece.part, piece.tensor,
                                  part(piece.part).contents().tensors[piece.tensor].first_chunk, 0, where.sizes});
    if (!done) {
      problems_.push_back(std::move(done).error());
      continue;
    }
    const tensor_entry& stored = part(piece.part).contents().tensors[piece.tensor];
    if (stored.shape != where.sizes)
      inner_boxes_.emplace(static_cast<std::int32_t>(contents_.chunk_places.size()) - 1, piece);
  }
  return {};
}

result<bool> folder_reader::add_opaque(const tensor_entry& entry, const tensor_metadata& tensor,
                                       std::vector<opened_part>& parts, const std::vector<std::int32_t>& at,
                                       const std::string& name) {
  std::optional<holder> added;
  for (const sharding& group : tensor.groups)
    for (const std::int32_t rank : group.ranks) {
      const std::int32_t position = at[static_cast<std::size_t>(rank)];
      if (position < 0 || parts[static_cast<std::size_t>(position)].is_flat) continue;
      opened_part& from = parts[static_cast<std::size_t>(position)];
      const auto found = from.tensors.find(name);
      if (found == from.tensors.end()) continue;
      const tensor_entry& stored = part(from.number).contents().tensors[found->second];
      if (stored.opaque_type.empty()) return added.has_value();
      from.described.insert(found->second);
      if (added) {
        compare_replicas(entry, *added, {from.number, found->second});
        continue;
      }
      added = holder{from.number, found->second};
      const std::vector<placed_box> boxes = group.boxes_of(rank);
      if (boxes.size() != 1 || boxes.front().where != box::whole(entry.shape))
        problems_.push_back(fail(errc::unsupported, fmt::format("a {} is not a part of a tensor", stored.opaque_kind))
                                .with_key(entry.key)
                                .with_rank(rank)
                                .with_file(part(from.number).path().string()));
      SHARDMESH_TRY(add_whole_tensor(entry.key, stored.where, from.number, found->second));
    }
  return added.has_value();
}

bool folder_reader::check_local(const tensor_entry& entry, const sharding& group, std::int32_t rank,
                                const std::vector<placed_box>& boxes, const opened_part& from, std::size_t index) {
  const checkpoint_reader& reader = part(from.number);
  const tensor_entry& stored = reader.contents().tensors[index];
  const auto refuse = [&](error problem) {
    problems_.push_back(std::move(problem).with_key(entry.key).with_rank(rank).with_file(reader.path().string()));
    return false;
  };
  if (stored.chunk_count != 1) return refuse(fail(errc::unsupported, "the file does not hold a part of a tensor"));
  if (stored.type != entry.type)
    return refuse(
        fail(errc::dtype_mismatch, "the metadata and the file have different dtypes")
            .with_values(std::string(shardmesh::name(entry.type)), std::string(shardmesh::name(stored.type))));
  const auto expected = group.local_shape(rank);
  if (expected && *expected != stored.shape)
    return refuse(fail(errc::shape_mismatch, "the rank's part does not have the shape that the metadata gives")
                      .with_values(to_string(*expected), to_string(stored.shape)));
  for (const placed_box& one : boxes)
    if (!lies_within({one.local_offsets, one.where.sizes}, box::whole(stored.shape)))
      return refuse(fail(errc::out_of_bounds, "a box lies outside of the rank's tensor")
                        .with_box({one.local_offsets, one.where.sizes})
                        .with_values(fmt::format("within {}", to_string(stored.shape)), ""));
  return true;
}

void folder_reader::compare_replicas(const tensor_entry& entry, const holder& a, const holder& b) {
  checkpoint_reader &left = part(a.part), &right = part(b.part);
  const tensor_entry &of_left = left.contents().tensors[a.tensor], &of_right = right.contents().tensors[b.tensor];
  // Tensors that are not read as elements have no checksum of their own, so their storages are read.
  const auto compare_all = [&]() -> result<std::optional<bool>> {
    SHARDMESH_TRY(const bool same, same_tensor(left, of_left, right, of_right));
    return std::optional(same);
  };
  const auto same = of_left.opaque_type.empty() ? same_by_checksum(left, of_left, right, of_right) : compare_all();
  if (!same || !*same || **same || !differing_.insert(entry.key).second) return;
  warnings_.push_back(fail(errc::checksum_mismatch,
                           fmt::format("differs from what {} holds, though the metadata says that they are copies; "
                                       "the latter is read",
                                       left.path().filename().string()))
                          .with_key(entry.key)
                          .with_file(right.path().string())
                          .with_hint(detail::restore_hint));
}

}  // namespace shardmesh::torch_checkpointing
