// SPDX-License-Identifier: Apache-2.0
// The entries of all ranks with one key, as one entry.
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.torch_file;
import :rank_reader;
import :same_elements;

namespace shardmesh {

result<void> rank_reader::merge_tensors(const key_entries& entries) {
  const tensor_entry& first = tensor_of(entries.tensors.front());
  SHARDMESH_TRY(const bool is_same, are_same_tensors(entries));
  if (!is_same && is_own_of_rank(first.where)) return add_each(entries.tensors, true);
  if (!first.opaque_type.empty())
    return add_whole_tensor(first.key, first.where, entries.tensors.front().part, entries.tensors.front().index);
  SHARDMESH_TRY(add_tensor(first));
  std::set<box> known;
  for (const held_entry& held : entries.tensors) {
    const tensor_entry& tensor = tensor_of(held);
    for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk) {
      const box where = contents_of(held.part).chunk_box(tensor, chunk);
      if (!known.insert(where).second) continue;  // a replica
      SHARDMESH_TRY(add_chunk(where, {held.part, held.index, chunk, 0, where.sizes}));
    }
  }
  return {};
}

result<bool> rank_reader::are_same_tensors(const key_entries& entries) {
  const tensor_entry& first = tensor_of(entries.tensors.front());
  const bool is_own = is_own_of_rank(first.where);
  std::map<box, std::shared_ptr<const opened_chunk>> known;
  for (const held_entry& held : entries.tensors) {
    const tensor_entry& tensor = tensor_of(held);
    if (tensor.type != first.type || tensor.shape != first.shape || tensor.opaque_type != first.opaque_type ||
        tensor.opaque_kind != first.opaque_kind) {
      if (is_own) return false;
      return at(differing(first, tensor), tensor.key, held.part);
    }
    if (first.opaque_type.starts_with("torch.distributed.")) continue;  // each rank has its own term of a reduction
    if (!first.opaque_type.empty()) {
      const held_entry& before = entries.tensors.front();
      SHARDMESH_TRY(const bool same,
                    have_same_content(part(before.part), {true, before.index}, part(held.part), {true, held.index}));
      if (same) continue;
      if (!is_own) problems_.push_back(values_differ(entries, held));
      return false;
    }
    for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk) {
      auto opened = part(held.part).open_chunk(tensor, chunk);
      if (!opened) return std::move(opened).error();
      const auto [before, is_new] = known.try_emplace(contents_of(held.part).chunk_box(tensor, chunk), *opened);
      if (is_new) continue;
      auto same = have_same_elements(*before->second, **opened);
      if (!same) return at(std::move(same).error(), tensor.key, held.part);
      if (*same) continue;
      if (!is_own) problems_.push_back(values_differ(entries, held));
      return false;
    }
  }
  return true;
}

error rank_reader::values_differ(const key_entries& entries, const held_entry& held) {
  return at(fail(errc::disagreement, fmt::format("its values differ from those of {}: the files are of different "
                                                 "saves, or the tensor is sharded without metadata",
                                                 name_of(entries.tensors.front().part))),
            entries.key, held.part);
}

error rank_reader::differing(const tensor_entry& a, const tensor_entry& b) {
  if (a.opaque_type != b.opaque_type || a.opaque_kind != b.opaque_kind)
    return fail(errc::disagreement, "is of a different kind than in the first rank's file");
  if (a.type != b.type)
    return fail(errc::dtype_mismatch, "has a different dtype than in the first rank's file")
        .with_values(std::string(name(a.type)), std::string(name(b.type)));
  return fail(errc::shape_mismatch, "has a different shape than in the first rank's file")
      .with_values(to_string(a.shape), to_string(b.shape));
}

result<void> rank_reader::merge_objects(const key_entries& entries) {
  const held_entry& first = entries.objects.front();
  const object_entry& entry = contents_of(first.part).objects[first.index];
  for (const held_entry& held : entries.objects) {
    SHARDMESH_TRY(const bool same, are_same_objects(first, held));
    if (same) continue;
    if (is_own_of_rank(entry.where)) return add_each(entries.objects, false);
    problems_.push_back(
        at(fail(errc::disagreement, fmt::format("its value differs from that of {}", name_of(first.part))), entry.key,
           held.part)
            .with_hint("check that the files belong to one save"));
    break;
  }
  return add_object(entry.key, entry.where, first.part, first.index);
}

result<bool> rank_reader::are_same_objects(const held_entry& a, const held_entry& b) {
  if (a.part == b.part && a.index == b.index) return true;
  SHARDMESH_TRY(const object_value left, part(a.part).read_object(a.index));
  SHARDMESH_TRY(const object_value right, part(b.part).read_object(b.index));
  if (left.kind != right.kind || left.type != right.type || left.json != right.json) return false;
  if (!torch_file::has_unknown_values(left.json)) return true;
  return have_same_content(part(a.part), {false, a.index}, part(b.part), {false, b.index});
}

result<void> rank_reader::add_each(const std::vector<held_entry>& entries, bool is_tensor) {
  for (const held_entry& held : entries) {
    const std::string rank = fmt::format("rank_{}", ranks_[held.part]);
    const std::string& key = is_tensor ? tensor_of(held).key : contents_of(held.part).objects[held.index].key;
    shardmesh::path where = is_tensor ? tensor_of(held).where : contents_of(held.part).objects[held.index].where;
    where.push_back(rank);
    SHARDMESH_TRY(is_tensor ? add_whole_tensor(key + "." + rank, std::move(where), held.part, held.index)
                            : add_object(key + "." + rank, std::move(where), held.part, held.index));
  }
  return {};
}

}  // namespace shardmesh
