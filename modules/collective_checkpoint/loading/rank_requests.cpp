// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.torch_file;
import :rank_requests;
import :round_share;

namespace shardmesh {

result<bool> rank_requests::collect(const catalog& contents) {
  for (std::size_t i = 0; i < wanted_.objects.size(); ++i)
    if (const object_entry* const found = contents.find_object(dotted(wanted_.objects[i].where)))
      object_of_stored_.emplace(static_cast<std::size_t>(found - contents.objects.data()), i);
  first_part_.reserve(wanted_.tensors.size());
  parts_.reserve(wanted_.tensors.size());
  for (const local_state_tensor& tensor : wanted_.tensors) {
    first_part_.push_back(parts_.size());
    const std::string key = dotted(tensor.where);
    // A part whose key the checkpoint lacks fills nothing.
    std::optional<tensor_view> nothing;
    const tensor_entry* const found = contents.find(key);
    if (found)
      tensor_of_stored_.emplace(static_cast<std::size_t>(found - contents.tensors.data()), first_part_.size() - 1);
    else
      nothing = tensor_view{nullptr, tensor.type, {}, {0}, {1}};
    for (const local_part& part : tensor.parts) {
      if (auto fillable = check_fillable(part.memory); !fillable)
        return std::move(fillable).error().with_key(key).with_rank(rank_).with_box(part.where);
      parts_.push_back({key, part.where, part.memory, nothing});
    }
  }
  auto shared = detail::find_shared_destinations(parts_);
  if (!shared) return std::move(shared).error().with_rank(rank_);
  const bool has_ties = !shared->tied.empty();
  SHARDMESH_TRY(ties_, detail::tied_destinations::make(std::move(shared->tied), parts_));
  return has_ties;
}

std::vector<std::size_t> rank_requests::tensors() const {
  std::vector<std::size_t> all;
  for (const auto& [stored, tensor] : tensor_of_stored_) all.push_back(stored);
  return all;
}

std::span<const load_request> rank_requests::parts_of(std::size_t tensor) const {
  const auto found = tensor_of_stored_.find(tensor);
  if (found == tensor_of_stored_.end()) return {};
  return std::span(parts_).subspan(first_part_[found->second], wanted_.tensors[found->second].parts.size());
}

const load_request* rank_requests::part_of(std::size_t tensor, std::int64_t part) const {
  const std::span<const load_request> parts = parts_of(tensor);
  return part < 0 || part >= std::ssize(parts) ? nullptr : &parts[static_cast<std::size_t>(part)];
}

bool rank_requests::wants(std::size_t tensor) const {
  const std::span<const load_request> parts = parts_of(tensor);
  return std::any_of(parts.begin(), parts.end(), [](const load_request& part) { return !part.where.is_empty(); });
}

bool rank_requests::fits(const round_share& round) const {
  for (const round_tensor_share& tensor : round)
    for (const piece_share& piece : tensor.pieces)
      for (const wanted_part& part : piece.wanted) {
        if (part.rank != rank_) continue;
        const load_request* const whole = part_of(tensor.stored, part.part);
        if (!whole || !lies_within(part.where, whole->where)) return false;
      }
  return true;
}

result<void> rank_requests::compare_ties() {
  auto equal = ties_.compare(parts_, [](std::size_t) { return true; });
  if (!equal) return std::move(equal).error().with_rank(rank_);
  return {};
}

bool rank_requests::has_object(std::size_t object) const {
  return object_of_stored_.contains(object);
}

result<void> rank_requests::keep_object(std::size_t object, std::span<const std::byte> archive) {
  const std::size_t i = object_of_stored_.at(object);
  auto value = torch_file::object_of_archive(archive);
  if (!value) return std::move(value).error().with_key(dotted(wanted_.objects[i].where));
  found_.insert_or_assign(i, *std::move(value));
  return {};
}

result<void> rank_requests::set_objects(std::span<const std::byte> objects) {
  detail::wire_reader in(objects);
  while (in.ok() && !in.finished()) {
    const auto stored = static_cast<std::size_t>(in.in_range(0, INT64_MAX));
    const std::vector<std::byte> archive = in.bytes();
    const auto mine = object_of_stored_.find(stored);
    if (!in.ok() || mine == object_of_stored_.end() || found_.contains(mine->second)) continue;
    SHARDMESH_TRY(keep_object(stored, archive));
  }
  if (!in.finished()) return fail(errc::communication, "a rank sent malformed objects");
  for (auto& [i, object] : found_) {
    local_state_object& to = wanted_.objects[i];
    to.form = std::move(object.form);
    to.leaves = std::move(object.leaves);
  }
  return {};
}

}  // namespace shardmesh
