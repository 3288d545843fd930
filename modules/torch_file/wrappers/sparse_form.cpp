// SPDX-License-Identifier: Apache-2.0
// Sparse tensors: coordinates, and compressed rows or columns.
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
module shardmesh.torch_file;

import :form_reader;

namespace shardmesh::torch_file {
namespace {

extents joined(extents first, const extents& second, std::size_t from = 0) {
  for (std::size_t d = from; d < second.rank(); ++d) first.push_back(second[d]);
  return first;
}

}  // namespace

// indices [dimensions, entries], values [entries, ...]
result<void> form_reader::read_coo() {
  made_.family = wrapper_family::coo;
  SHARDMESH_TRY(expect({"indices", "values"}));
  SHARDMESH_TRY(read_size());
  if (const pickle::value flag = given_.find("is_coalesced")) {
    made_.is_coalesced = flag.as_bool();
    if (!made_.is_coalesced) return bad("is_coalesced is not a bool");
  }
  SHARDMESH_TRY(check_type("indices", {dtype::int64}));
  const extents& indices = made_.find("indices")->shape;
  if (indices.rank() != 2 || indices[0] > static_cast<std::int64_t>(made_.size.rank()))
    return misfit("indices", {static_cast<std::int64_t>(made_.size.rank()), 0});
  const extents expected = joined({indices[1]}, made_.size, static_cast<std::size_t>(indices[0]));
  if (made_.find("values")->shape != expected) return misfit("values", expected);
  made_.element_type = made_.find("values")->type;
  return {};
}

// crow_indices [.., rows + 1], col_indices [.., entries], values [.., entries, (block,) ...]
result<void> form_reader::read_compressed() {
  made_.family = wrapper_family::compressed;
  const auto [first, second] = made_.layout->component;
  SHARDMESH_TRY(expect({first, second, "values"}));
  SHARDMESH_TRY(read_size());
  SHARDMESH_TRY(check_type(first, {dtype::int64, dtype::int32}));
  SHARDMESH_TRY(check_type(second, {made_.find(first)->type}));
  made_.element_type = made_.find("values")->type;
  const extents &pointers = made_.find(first)->shape, &values = made_.find("values")->shape;
  const std::size_t batch = pointers.rank() - std::min<std::size_t>(pointers.rank(), 1);
  const std::size_t blocks = made_.layout->in_blocks ? 2 : 0;
  if (pointers.rank() == 0 || made_.size.rank() < batch + 2) return misfit(first, {0});
  if (values.rank() != made_.size.rank() - 1 + blocks) return misfit("values", made_.size);
  extents in_front;
  for (std::size_t d = 0; d < batch; ++d) in_front.push_back(made_.size[d]);
  const std::int64_t entries = values[batch];
  extents blocked{1, 1}, expected = joined(in_front, {entries});
  if (made_.find(second)->shape != expected) return misfit(second, expected);
  for (std::size_t d = 0; d < blocks; ++d) {
    blocked[d] = values[batch + 1 + d];
    if (blocked[d] == 0 || made_.size[batch + d] % blocked[d] != 0) return misfit("values", made_.size);
    expected.push_back(blocked[d]);
  }
  expected = joined(expected, made_.size, batch + 2);
  if (values != expected) return misfit("values", expected);
  const std::size_t along = made_.layout->along;
  const extents counted = joined(in_front, {made_.size[batch + along] / blocked[along] + 1});
  if (pointers != counted) return misfit(first, counted);
  return {};
}

}  // namespace shardmesh::torch_file
