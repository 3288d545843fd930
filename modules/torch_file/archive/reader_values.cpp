// SPDX-License-Identifier: Apache-2.0
// The elements and objects of a .pt file, and their checks.
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :item_records;
import :object_parts;
import :plain_data;
import :torch_file_reader;

namespace shardmesh::torch_file {

result<std::shared_ptr<const opened_chunk>> torch_file_reader::open_chunk(const tensor_entry& tensor,
                                                                          std::int32_t chunk) {
  if (chunk >= first_expanded_) return *expanded_;
  if (const auto refusal = budget_.refusal()) return *refusal;
  const chunk_place& place = chunks_[static_cast<std::size_t>(chunk)];
  auto opened = open_tensor(*item_, place.tensor, source_, budget_, "");
  if (!opened) return budget_.keep(std::move(opened).error().with_key(tensor.key).with_file(path_.string()));
  for (std::size_t d = 0; d < place.local.rank(); ++d)
    opened->tensor.storage_offset += place.local.offsets[d] * opened->tensor.strides[d];
  opened->tensor.sizes = place.local.sizes;
  opened->reads_in_order = opened->reads_in_order || is_decoded_;
  return std::make_shared<const opened_chunk>(std::move(*opened));
}

result<object_value> torch_file_reader::read_object(std::size_t index) {
  if (const auto refusal = budget_.refusal()) return *refusal;
  auto value = describe_object(*item_, objects_[index], *source_, budget_);
  if (!value)
    return budget_.keep(std::move(value).error().with_key(contents_.objects[index].key).with_file(path_.string()));
  return value;
}

result<opened_value> torch_file_reader::open_opaque(std::size_t tensor) {
  const auto lent = [](auto& thing) {
    return std::shared_ptr<std::remove_reference_t<decltype(thing)>>(std::shared_ptr<void>(), &thing);
  };
  return opened_value{{source_, lent(std::as_const(*item_)), lent(budget_), ""}, opaque_tensors_.at(tensor)};
}

result<std::vector<std::byte>> torch_file_reader::object_archive(std::size_t index) {
  const auto refuse = [&](error e) {
    return std::move(e).with_key(contents_.objects[index].key).with_file(path_.string());
  };
  if (holds_tensors(*item_, objects_[index]))
    return refuse(
        fail(errc::unsupported, "an object of a .pt file that holds tensors cannot be written as a DCP item"));
  pickle::writer out(2);
  if (auto done = out.value(objects_[index]); !done) return refuse(std::move(done).error());
  return torch_file::object_archive(std::move(out).finish());
}

check_outcome torch_file_reader::check_whole(std::span<const whole_entry> entries, const check_options& options) {
  if (options.quick) return {};
  if (std::none_of(entries.begin(), entries.end(), [&](const auto& entry) { return may_refer(value_of(entry)); }))
    return {};
  auto opened = item_storages::open(*source_, *item_, &budget_);
  if (!opened) return {{std::move(opened).error()}, 0, 0, 0};
  // One thread: storages that entries share are then checked once.
  check_options in_order = options;
  in_order.threads = 1;
  return check_each(entries, in_order, [&](const whole_entry& entry) -> result<std::pair<std::int64_t, std::int64_t>> {
    SHARDMESH_TRY(const record_sums sums, opened->check_reachable(value_of(entry)));
    return std::pair(sums.checked_bytes, sums.unchecked_bytes);
  });
}

result<std::optional<digest128>> torch_file_reader::content_of(const whole_entry& entry) {
  if (entry.is_tensor && !opaque_tensors_.contains(entry.index)) return std::optional<digest128>();
  SHARDMESH_TRY(item_storages storages, item_storages::open(*source_, *item_, &budget_));
  SHARDMESH_TRY(const digest128 digest, storages.content_of(value_of(entry)));
  return std::optional(digest);
}

pickle::value torch_file_reader::value_of(const whole_entry& entry) const {
  return entry.is_tensor ? opaque_tensors_.at(entry.index) : objects_[entry.index];
}

}  // namespace shardmesh::torch_file
