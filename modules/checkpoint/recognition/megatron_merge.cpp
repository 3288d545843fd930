// SPDX-License-Identifier: Apache-2.0
// The tensors of all ranks with one name, as one tensor.
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :megatron_cut;
import :megatron_ranks;
import :same_elements;

namespace shardmesh {

result<void> megatron_ranks_reader::merge_tensor(const megatron_key& key, const stage& of, std::size_t index) {
  const std::size_t first = part_at(0, of.rank);
  const tensor_entry& tensor = contents_of(first).tensors[index];
  const std::string name = whole_name(key, of.first_layer);
  const auto [known, is_new] = merged_.emplace(name, first_place{of.rank, tensor.key});
  if (!is_new) return check_repeated(tensor.key, of, known->second, true);
  if (name.ends_with("._extra_state")) return merge_states(name, of, tensor.key);
  std::vector<std::size_t> positions;
  for (std::int64_t rank = 0; rank < tensor_ranks_; ++rank) {
    const std::size_t part = part_at(rank, of.rank);
    positions.push_back(position_of(part, tensor.key));
    SHARDMESH_TRY(check_same_form(tensor, contents_of(part).tensors[positions.back()], part));
  }
  tensor_entry made = tensor;
  made.key = key_of(name);
  made.where = path_of(name);
  const megatron_cut cut = tensor_ranks_ == 1 ? megatron_cut::copy : megatron_cut_of(name);
  if (cut == megatron_cut::copy) return merge_copies(std::move(made), of, positions);
  const std::size_t dim = cut == megatron_cut::columns ? 1 : 0;
  if (cut == megatron_cut::unknown || !tensor.opaque_type.empty() || tensor.chunk_count != 1)
    return at(fail(errc::unsupported, "no rule says how its parts are merged")
                  .with_hint("save with --ckpt-format torch_dist, or open the ranks' files one by one"),
              tensor.key, first);
  if (tensor.shape.rank() <= dim || tensor.shape.rank() > 2)
    return at(fail(errc::shape_mismatch, "has another number of dimensions than Megatron's tensors of this name")
                  .with_values(dim == 1 ? "2 dimensions" : "1 or 2 dimensions", to_string(tensor.shape)),
              tensor.key, first);
  std::vector<std::int64_t> blocks{tensor.shape[dim]};
  if (cut == megatron_cut::gates) {
    SHARDMESH_TRY(blocks, blocks_of(key, of, tensor));
  }
  return merge_parts(std::move(made), of, positions, dim, blocks);
}

result<void> megatron_ranks_reader::check_same_form(const tensor_entry& first, const tensor_entry& other,
                                                    std::size_t part) {
  if (first.opaque_type != other.opaque_type || first.chunk_count != other.chunk_count)
    return at(fail(errc::disagreement, "is of another kind than in the first rank's file"), first.key, part);
  if (first.type != other.type)
    return at(fail(errc::dtype_mismatch, "has another dtype than in the first rank's file")
                  .with_values(std::string(name(first.type)), std::string(name(other.type))),
              first.key, part);
  if (first.shape != other.shape)
    return at(fail(errc::shape_mismatch, "has another shape than in the first rank's file")
                  .with_values(to_string(first.shape), to_string(other.shape)),
              first.key, part);
  return {};
}

// With a gated activation, linear_fc1 has twice the rows that linear_fc2 has columns.
result<std::vector<std::int64_t>> megatron_ranks_reader::blocks_of(const megatron_key& key, const stage& of,
                                                                   const tensor_entry& tensor) {
  const std::size_t part = part_at(0, of.rank);
  const std::string root = tensor.key.substr(0, tensor.key.size() - key.name.size());
  const std::string other_key = root + second_layer_of(key.name);
  const tensor_entry* const other = contents_of(part).find(other_key);
  if (other == nullptr || other->shape.rank() != 2)
    return at(fail(errc::missing_key,
                   fmt::format("its parts are merged by the columns of {}, which is no matrix here", other_key)),
              tensor.key, part);
  const std::int64_t rows = tensor.shape[0], columns = other->shape[1];
  if (rows == columns) return std::vector<std::int64_t>{rows};
  if (rows % 2 == 0 && rows / 2 == columns) return std::vector<std::int64_t>{columns, columns};
  return at(fail(errc::shape_mismatch, fmt::format("does not fit {}, which has {} columns", other_key, columns))
                .with_values("as many rows, or twice as many", fmt::format("{} rows", rows)),
            tensor.key, part);
}

result<void> megatron_ranks_reader::merge_parts(tensor_entry made, const stage& of,
                                                const std::vector<std::size_t>& positions, std::size_t dim,
                                                const std::vector<std::int64_t>& blocks) {
  const std::size_t first = part_at(0, of.rank);
  const extents shape = made.shape;
  const auto product = checked_multiply(shape[dim], tensor_ranks_);
  if (!product) return at(fail(errc::overflow, "the merged tensor's length does not fit in 64 bits"), made.key, first);
  made.shape[dim] = *product;
  made.properties.strides.reset();
  if (is_of_experts(made.key) && shape.rank() == 2 && !box::whole(shape).is_empty()) {
    const std::size_t second = part_at(1, of.rank);
    auto same = are_equal(first, positions[0], second, positions[1]);
    if (!same) return at(std::move(same).error(), made.key, second);
    if (*same)
      return at(fail(errc::unsupported,
                     "the tensor-parallel ranks have equal parts of an expert: whole experts, as "
                     "with --expert-tensor-parallel-size 1, are not merged")
                    .with_hint("save with --ckpt-format torch_dist"),
                made.key, second);
  }
  SHARDMESH_TRY(add_tensor(std::move(made)));
  // Blocks are runs of elements because they are along dimension 0, or because there is only one.
  const std::int64_t row = dim == 0 && shape.rank() == 2 ? shape[1] : 1;
  for (std::int64_t rank = 0; rank < tensor_ranks_; ++rank) {
    const std::size_t part = part_at(rank, of.rank), position = positions[static_cast<std::size_t>(rank)];
    const std::int32_t chunk = contents_of(part).tensors[position].first_chunk;
    std::int64_t begin = 0, whole_begin = 0;  // of the block along the dimension
    for (const std::int64_t length : blocks) {
      box where = box::whole(shape);
      where.sizes[dim] = length;
      where.offsets[dim] = whole_begin + rank * length;
      // A tensor without elements has one empty chunk.
      if (!where.is_empty() || contents_.tensors.back().chunk_count == 0)
        SHARDMESH_TRY(add_chunk(where, {part, position, chunk, begin * row, where.sizes}));
      begin += length;
      whole_begin += length * tensor_ranks_;
    }
  }
  return {};
}

result<void> megatron_ranks_reader::merge_copies(tensor_entry made, const stage& of,
                                                 const std::vector<std::size_t>& positions) {
  const std::size_t first = part_at(0, of.rank);
  for (std::int64_t rank = 1; rank < tensor_ranks_; ++rank) {
    const std::size_t part = part_at(rank, of.rank);
    auto same = are_equal(first, positions[0], part, positions[static_cast<std::size_t>(rank)]);
    if (!same) return at(std::move(same).error(), made.key, part);
    if (!*same)
      return at(fail(errc::disagreement,
                     fmt::format("its values differ from those of {}, and no rule says how it is cut", folders_[first]))
                    .with_values("equal values in the files of all tensor-parallel ranks", "other values")
                    .with_hint("check that the files are of one save, or open them one by one"),
                made.key, part);
  }
  return add_whole_tensor(std::move(made.key), std::move(made.where), first, positions[0]);
}

result<bool> megatron_ranks_reader::are_equal(std::size_t part, std::size_t index, std::size_t other,
                                              std::size_t other_index) {
  const tensor_entry &a = contents_of(part).tensors[index], &b = contents_of(other).tensors[other_index];
  if (a.type != b.type || a.shape != b.shape || a.chunk_count != b.chunk_count || a.opaque_type != b.opaque_type)
    return false;
  if (!a.opaque_type.empty())
    return have_same_content(this->part(part), {true, index}, this->part(other), {true, other_index});
  for (std::int32_t chunk = 0; chunk < a.chunk_count; ++chunk) {
    SHARDMESH_TRY(const auto left, this->part(part).open_chunk(a, a.first_chunk + chunk));
    SHARDMESH_TRY(const auto right, this->part(other).open_chunk(b, b.first_chunk + chunk));
    SHARDMESH_TRY(const bool same, have_same_elements(*left, *right));
    if (!same) return false;
  }
  return true;
}

}  // namespace shardmesh
