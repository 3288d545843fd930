// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.checkpoint_core;

namespace shardmesh {

std::string_view name(checkpoint_format format) {
  switch (format) {
    case checkpoint_format::dcp:
      return "dcp";
    case checkpoint_format::torch_file:
      return "torch";
    case checkpoint_format::safetensors:
      return "safetensors";
    case checkpoint_format::hf:
      return "hf";
    case checkpoint_format::torch_files:
      return "torch-files";
    case checkpoint_format::deepspeed:
      return "deepspeed";
    case checkpoint_format::torchsnapshot:
      return "torchsnapshot";
    case checkpoint_format::torch_checkpointing:
      return "torch-checkpointing";
    case checkpoint_format::parts:
      return "parts";
    case checkpoint_format::gguf:
      return "gguf";
    case checkpoint_format::npz:
      return "npz";
    case checkpoint_format::nemo:
      return "nemo";
    case checkpoint_format::delta:
      return "delta";
  }
  return "unknown";
}

std::optional<std::int32_t> rank_of_file(std::string_view file) {
  std::int32_t rank = 0;
  if (file.starts_with("../")) file.remove_prefix(file.rfind('/') + 1);  // of a folder beside the checkpoint's
  if (!file.starts_with("__")) return std::nullopt;
  const auto [end, code] = std::from_chars(file.data() + 2, file.data() + file.size(), rank);
  if (code != std::errc{} || end == file.data() + file.size() || *end != '_' || rank < 0) return std::nullopt;
  if (rank == std::numeric_limits<std::int32_t>::max()) return std::nullopt;  // so many ranks have no number
  return rank;
}

std::string to_string(const tensor_entry& tensor) {
  const std::string_view opaque = tensor.opaque_kind.empty() ? tensor.opaque_type : tensor.opaque_kind;
  return fmt::format("{}: {}{}{}{}", tensor.key, opaque, opaque.empty() ? "" : " ", name(tensor.type),
                     to_string(tensor.shape));
}

std::string to_string(const object_entry& object) {
  return object.key + ": object";
}

error to_error(const cover_problem& problem) {
  switch (problem.kind) {
    case cover_kind::overlap:
      return fail(errc::overlap, "two chunks overlap").with_box(problem.where);
    case cover_kind::gap:
      return fail(errc::gap, "no chunk holds these cells").with_box(problem.where);
    case cover_kind::out_of_bounds:
      return fail(errc::out_of_bounds, "a chunk lies outside of the tensor").with_box(problem.where);
  }
  return fail(errc::bad_format, "the chunks do not tile the tensor");
}

const tensor_entry* catalog::find(std::string_view key) const {
  const auto found = tensor_of_key_.find(std::span<const tensor_entry>(tensors), key);
  return found ? &tensors[*found] : nullptr;
}

const object_entry* catalog::find_object(std::string_view key) const {
  const auto found = object_of_key_.find(std::span<const object_entry>(objects), key);
  return found ? &objects[*found] : nullptr;
}

void catalog::reserve(std::size_t tensor_count, std::size_t chunks) {
  tensors.reserve(tensor_count);
  chunk_places.reserve(chunks);
  first_bound_.reserve(chunks);
  chunk_bounds_.reserve(4 * chunks);
}

void catalog::add_chunk(const box& where, const stored_range& place) {
  if (tensors.back().chunk_count++ == 0) tensors.back().first_chunk = static_cast<std::int32_t>(chunk_places.size());
  first_bound_.push_back(static_cast<std::int64_t>(chunk_bounds_.size()));
  chunk_bounds_.insert(chunk_bounds_.end(), where.offsets.begin(), where.offsets.end());
  chunk_bounds_.insert(chunk_bounds_.end(), where.sizes.begin(), where.sizes.end());
  chunk_places.push_back(place);
}

box catalog::chunk_box(const tensor_entry& tensor, std::int32_t chunk) const {
  const std::size_t rank = tensor.shape.rank();
  const std::span<const std::int64_t> bounds(chunk_bounds_.data() + first_bound_[static_cast<std::size_t>(chunk)],
                                             2 * rank);
  return {extents(bounds.first(rank)), extents(bounds.last(rank))};
}

result<distribution> catalog::distribution_of(const tensor_entry& tensor) const {
  const auto owner_of = [&](std::int32_t chunk) {
    const stored_range& place = chunk_places[static_cast<std::size_t>(chunk)];
    return place.file >= 0 ? place.file : static_cast<owner_id>(files.size());
  };
  if (tensor.chunk_count == 1) {
    const box where = chunk_box(tensor, tensor.first_chunk);
    const fragment whole{where, owner_of(tensor.first_chunk), tensor.first_chunk, extents::filled(where.rank(), 0), 0};
    auto made = distribution::from_fragments(tensor.shape, std::span(&whole, 1), owner_space::items);
    if (!made) return std::move(made).error().with_key(tensor.key);
    return made;
  }
  distribution_builder chunks(tensor.shape, owner_space::items);
  chunks.reserve(static_cast<std::size_t>(tensor.chunk_count));
  for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk) {
    const box where = chunk_box(tensor, chunk);
    chunks.add(owner_of(chunk), chunk, where.offsets, where.sizes);
  }
  auto made = chunks.finish();
  if (!made) return std::move(made).error().with_key(tensor.key);
  return made;
}

std::int64_t catalog::tensor_bytes() const {
  std::int64_t total = 0;
  for (const tensor_entry& tensor : tensors) {
    const auto volume = checked_volume(tensor.shape);
    const auto bytes = volume ? size_bytes(tensor.type, *volume) : std::nullopt;
    const auto sum = bytes ? checked_add(total, *bytes) : std::nullopt;
    if (!sum) return INT64_MAX;
    total = *sum;
  }
  return total;
}

result<void> check_distinct_keys(const catalog& entries, std::string_view message) {
  std::unordered_set<std::string_view> keys;
  const auto add = [&](const std::string& key) -> result<void> {
    if (keys.insert(key).second) return {};
    return fail(errc::duplicate_key, std::string(message)).with_key(key);
  };
  for (const tensor_entry& tensor : entries.tensors) SHARDMESH_TRY(add(tensor.key));
  for (const object_entry& object : entries.objects) SHARDMESH_TRY(add(object.key));
  return {};
}

}  // namespace shardmesh
