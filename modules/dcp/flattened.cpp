// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <restore_hint.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :flattened;
import :pickled_fields;

namespace shardmesh::dcp {
namespace {

// Returns the sizes of one part when `stored` is a flat form of `shape`; else nothing.
std::optional<extents> part_of(const extents& stored, const extents& shape) {
  if (stored.rank() != shape.rank() + 1) return std::nullopt;
  extents part;
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    if (stored[d] == 0 || shape[d] % stored[d] != 0) return std::nullopt;
    part.push_back(shape[d] / stored[d]);
  }
  const auto elements = checked_volume(part);
  if (!elements || *elements != stored[shape.rank()] || !checked_volume(shape)) return std::nullopt;
  return part;
}

}  // namespace

std::vector<flattened_tensor> find_flattened(const catalog& stored, const extras& extras,
                                             std::vector<error>& problems) {
  std::vector<flattened_tensor> found;
  std::unordered_map<std::string_view, pickle::value> shapes;
  for (const auto& [name, value] : extras.attributes) {
    if (name != megatron_attribute) continue;
    for (const auto [key, data] : value.pairs())
      for (const auto [field, shape] : data.pairs())
        if (key.text() && field.text() == "nd_reformulated_orig_global_shape" && !shape.is_none())
          shapes.emplace(*key.text(), shape);
  }
  if (shapes.empty()) return found;
  for (std::size_t i = 0; i < stored.tensors.size(); ++i) {
    const tensor_entry& tensor = stored.tensors[i];
    const auto known = shapes.find(tensor.key);
    if (known == shapes.end()) continue;
    const auto shape = read_sizes(known->second, "shape in mcore_data");
    if (!shape) {
      problems.push_back(error(shape.error()).with_key(tensor.key));
      continue;
    }
    if (auto part = part_of(tensor.shape, *shape))
      found.push_back({i, *shape, *part});
    else
      problems.push_back(fail(errc::shape_mismatch, "is not stored in the flat form of its shape in mcore_data")
                             .with_key(tensor.key)
                             .with_values(to_string(*shape), to_string(tensor.shape)));
  }
  return found;
}

result<std::vector<whole_piece>> pieces_of(const flattened_tensor& tensor, const box& chunk, std::size_t most) {
  std::vector<whole_piece> pieces;
  if (chunk.is_empty()) return pieces;
  const std::size_t rank = tensor.shape.rank();
  const std::int64_t begin = chunk.offsets[rank], size = chunk.sizes[rank];
  const std::vector<flat_box> run = boxes_of_range(tensor.part, {begin, size});
  const std::int64_t parts = chunk.volume() / size;
  if (parts > static_cast<std::int64_t>(most / run.size()))
    return fail(errc::bad_format, "a tensor of Megatron's is cut into too many pieces")
        .with_values(fmt::format("at most {} pieces", most), "more")
        .with_hint(detail::restore_hint);
  extents at = extents::filled(rank, 0);  // the part's position in the chunk's grid of parts
  for (std::int64_t number = 0; number < parts; ++number) {
    for (const flat_box& one : run) {
      whole_piece piece{one.where, number * size + one.begin - begin};
      for (std::size_t d = 0; d < rank; ++d) piece.where.offsets[d] += (chunk.offsets[d] + at[d]) * tensor.part[d];
      pieces.push_back(piece);
    }
    for (std::size_t d = rank; d-- > 0 && ++at[d] == chunk.sizes[d];) at[d] = 0;
  }
  return pieces;
}

}  // namespace shardmesh::dcp
