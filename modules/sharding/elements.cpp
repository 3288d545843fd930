// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <shardmesh/try.hpp>
module shardmesh.sharding;

namespace shardmesh::detail {
namespace {

// Calls visit(index) for the first index of every row of a tensor of these sizes, row-major.
template <class Visit>
void each_row(const extents& sizes, Visit&& visit) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return;
  extents at = extents::filled(sizes.rank(), 0);
  while (true) {
    visit(std::as_const(at));
    std::size_t d = sizes.empty() ? 0 : sizes.rank() - 1;
    while (d > 0 && ++at[d - 1] == sizes[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

extents sum(const extents& a, const extents& b) {
  extents made = a;
  for (std::size_t d = 0; d < a.rank(); ++d) made[d] += b[d];
  return made;
}

std::int64_t row_length(const extents& sizes) {
  return sizes.empty() ? 1 : sizes[sizes.rank() - 1];
}

// Checks that the tensor is the rank's slot 0, and that the rank has no other slot.
result<void> check_part(const distribution& d, std::int32_t rank, const const_tensor_view& tensor) {
  extents needed = extents::filled(d.global_shape().rank(), 0);
  std::optional<fragment> other;
  bool holds = false;
  d.fragments_of(rank, [&](const fragment& f) {
    if (f.slot != 0) other = f;
    for (std::size_t i = 0; i < needed.rank(); ++i)
      needed[i] = std::max(needed[i], f.local_offsets[i] + f.where.sizes[i]);
    holds = true;
    return !other;
  });
  if (other)
    return fail(errc::unsupported, "a rank holds more than one tensor")
        .with_rank(rank)
        .with_box(other->where)
        .with_hint("call for_each_element for each of its shards");
  if (!holds || tensor.sizes == needed) return {};
  return fail(errc::shape_mismatch, "the tensor is not as large as the rank's part")
      .with_rank(rank)
      .with_values(to_string(needed), to_string(tensor.sizes));
}

}  // namespace

void each_run(const box& where, const extents& local, run_of_indices visit) {
  each_row(where.sizes, [&](const extents& row) {
    extents global = sum(where.offsets, row), held = sum(local, row);
    visit(global, held, row_length(where.sizes));
  });
}

void each_run(const box& where, const extents& local, const const_tensor_view& tensor, run_of_elements visit) {
  const std::int64_t item = item_bytes(tensor.type);
  const std::int64_t stride = where.rank() == 0 ? 0 : tensor.strides[where.rank() - 1] * item;
  each_row(where.sizes, [&](const extents& row) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < row.rank(); ++d) at += (local[d] + row[d]) * tensor.strides[d];
    extents global = sum(where.offsets, row);
    visit(global, tensor.data + at * item, row_length(where.sizes), stride);
  });
}

result<void> each_run_of_rank(const distribution& d, std::int32_t rank, run_of_indices visit) {
  d.fragments_of(rank, [&](const fragment& f) {
    each_run(f.where, f.local_offsets, visit);
    return true;
  });
  return {};
}

result<void> each_run_of_rank(const distribution& d, std::int32_t rank, const const_tensor_view& tensor,
                              element_type type, run_of_elements visit) {
  SHARDMESH_TRY(check_part(d, rank, tensor));
  if (auto valid = check_element_memory(tensor, type); !valid) return std::move(valid).error().with_rank(rank);
  d.fragments_of(rank, [&](const fragment& f) {
    each_run(f.where, f.local_offsets, tensor, visit);
    return true;
  });
  return {};
}

result<box> check_shard(const shard_metadata_view& shard, const extents& sizes, const extents* origin) {
  if (!shard.is_well_formed())
    return at_shard(fail(errc::out_of_bounds, "a shard has " + box_text(shard) + ", which do not form a box"), shard);
  box where = shard.where();
  if (where.sizes != sizes)
    return at_shard(fail(errc::shape_mismatch, "a shard's tensor does not have the shard's sizes")
                        .with_values(to_string(where.sizes), to_string(sizes)),
                    shard);
  if (origin == nullptr) return where;
  if (origin->rank() != where.rank())
    return at_shard(fail(errc::shape_mismatch, "a shard has a different number of dimensions than its tensor")
                        .with_values(std::to_string(origin->rank()), std::to_string(where.rank())),
                    shard);
  return shifted(where, *origin);
}

result<void> check_element_memory(const const_tensor_view& tensor, element_type type) {
  if (tensor.type != type.type)
    return fail(errc::dtype_mismatch, "the tensor has elements of another type")
        .with_values(std::string(name(type.type)), std::string(name(tensor.type)));
  SHARDMESH_TRY(check_host_memory(tensor));
  if (numel(tensor) > 0 && reinterpret_cast<std::uintptr_t>(tensor.data) % type.alignment != 0)
    return fail(errc::unaligned, "the tensor's memory is not aligned to its elements")
        .with_values(fmt::format("a multiple of {} bytes", type.alignment),
                     fmt::format("address {}", static_cast<const void*>(tensor.data)));
  return {};
}

error nested_too_deeply(const shard_metadata_view& shard) {
  return at_shard(fail(errc::invalid_argument, "sharded tensors are nested too deeply")
                      .with_values(fmt::format("at most {}", max_shard_nesting), "more"),
                  shard);
}

}  // namespace shardmesh::detail
