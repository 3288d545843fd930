// SPDX-License-Identifier: Apache-2.0
module;
#include <position_table.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;
import :planned_load;

namespace shardmesh {
namespace {

// Finds tensors by key, for many requests. Keys in the catalog's order, the usual case, need no search.
class tensor_finder {
 public:
  explicit tensor_finder(const checkpoint_reader& reader) : reader_(reader) {}

  result<const tensor_entry*> operator()(std::string_view key) {
    const std::vector<tensor_entry>& all = reader_.contents().tensors;
    if (next_ < all.size() && all[next_].key == key) return &all[next_++];
    SHARDMESH_TRY(const tensor_entry* const found, find_tensor(reader_, key));
    next_ = static_cast<std::size_t>(found - all.data()) + 1;
    return found;
  }

 private:
  const checkpoint_reader& reader_;
  std::size_t next_ = 0;
};

// Checks that the stored elements can be loaded into the request's memory.
result<void> check_request(const tensor_entry& tensor, const load_request& request, const load_options& options) {
  if (!tensor.opaque_type.empty())
    return fail(errc::unsupported, "a tensor of an unknown representation cannot be loaded")
        .with_values("", tensor.opaque_type);
  if (request.where.rank() != tensor.shape.rank() || !is_well_formed(request.where) ||
      !lies_within(request.where, box::whole(tensor.shape)))
    return fail(errc::shape_mismatch, "the requested box does not fit the stored shape")
        .with_box(request.where)
        .with_values(to_string(tensor.shape), to_string(request.where));
  if (request.to.sizes != request.where.sizes)
    return fail(errc::shape_mismatch, "the tensor to load into does not have the sizes of the requested box")
        .with_box(request.where)
        .with_values(to_string(request.where.sizes), to_string(request.to.sizes));
  auto fits = check_reachable(request.to);
  if (fits) fits = check_fillable(request.to);
  if (fits) fits = check_cast(tensor.type, request.to.type, options.allow_narrowing);
  if (!fits) return std::move(fits).error().with_box(request.where);
  return {};
}

}  // namespace

result<planned_load> plan_load(const checkpoint_reader& reader, std::span<const load_request> requests,
                               const load_options& options) {
  planned_load made;
  made.tensors.reserve(requests.size());
  made.held.reserve(requests.size());
  made.tensor_of.reserve(requests.size());
  std::set<std::pair<const tensor_entry*, dtype>> casts;
  tensor_finder find_next(reader);
  detail::position_table index_of(requests.size());
  const auto hash_of = [](const tensor_entry* tensor) {
    return std::hash<const tensor_entry*>()(tensor) * 0x9E37'79B9'7F4A'7C15 >> 16;
  };
  for (const load_request& request : requests) {
    SHARDMESH_TRY(const tensor_entry* const tensor, find_next(request.key));
    if (auto valid = check_request(*tensor, request, options); !valid)
      return std::move(valid).error().with_file(reader.path().string()).with_key(request.key);
    if (tensor->type != request.to.type && casts.emplace(tensor, request.to.type).second)
      made.casts.push_back({tensor->key, tensor->type, request.to.type});
    std::size_t at = index_of.find(hash_of(tensor), [&](std::size_t i) { return made.tensors[i] == tensor; });
    if (at == index_of.none) {
      at = made.tensors.size();
      index_of.insert(hash_of(tensor), at, [&](std::size_t i) { return hash_of(made.tensors[i]); });
      SHARDMESH_TRY(distribution chunks, reader.contents().distribution_of(*tensor));
      made.held.push_back(std::move(chunks));
      made.tensors.push_back(tensor);
    }
    made.tensor_of.push_back(at);
  }
  return made;
}

result<const tensor_entry*> find_tensor(const checkpoint_reader& reader, std::string_view key) {
  const tensor_entry* const found = reader.contents().find(key);
  if (!found) return no_such_entry(reader, key, entry_kind::tensor);
  return found;
}

}  // namespace shardmesh
