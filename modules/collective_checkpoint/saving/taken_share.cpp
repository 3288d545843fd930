// SPDX-License-Identifier: Apache-2.0
// Makes the assignment of one rank from the share that rank 0 sent.
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.comm;
import :rank_share;
import :rank_state;
import :save_assignment;

namespace shardmesh {
namespace {

// Makes the assignment of one rank from its share.
class share_taker {
 public:
  share_taker(const const_local_state& held, std::span<const described_object> objects, std::int32_t rank)
      : held_(held), objects_(objects), rank_(rank) {}

  result<save_assignment> take(const rank_share& share) {
    for (const object_share& object : share.objects) SHARDMESH_TRY(add_object(object));
    for (const tensor_share& tensor : share.tensors) SHARDMESH_TRY(add_tensor(tensor));
    return std::move(made_);
  }

 private:
  result<void> add_object(const object_share& share) {
    if (share.index < 0 || share.index >= std::ssize(objects_)) return bad_share();
    const described_object& object = objects_[static_cast<std::size_t>(share.index)];
    const std::string key = share.key.value_or(dotted(object.where));
    made_.objects.push_back({key, share.key ? path{key} : object.where, rank_, {}, {}});
    made_.object_lengths.push_back(object.length);
    made_.object_indices.push_back(static_cast<std::ptrdiff_t>(share.index));
    return {};
  }

  result<void> add_tensor(const tensor_share& share) {
    if (share.index < 0 || share.index >= std::ssize(held_.tensors)) return bad_share();
    const const_local_state_tensor& tensor = held_.tensors[static_cast<std::size_t>(share.index)];
    output_tensor made;
    made.key = share.key.value_or(dotted(tensor.where));
    made.where = share.key ? path{made.key} : tensor.where;
    made.type = made.bytes.to_type = share.type;
    made.bytes.from_type = tensor.type;
    distribution_builder sources(tensor.shape, owner_space::items);
    for (const std::int64_t index : share.parts) {
      if (index < 0 || index >= std::ssize(tensor.parts)) return bad_share();
      const const_local_part& part = tensor.parts[static_cast<std::size_t>(index)];
      made.chunks.push_back({part.where, rank_});
      sources.add(0, static_cast<std::int32_t>(made_.source.views.size()), part.where.offsets, part.where.sizes);
      made_.source.views.push_back(part.memory);
      made_.places.push_back({static_cast<std::size_t>(share.index), static_cast<std::size_t>(index)});
    }
    if (share.parts.empty()) made.chunks.push_back({box::whole(tensor.shape), rank_});
    auto from = sources.finish();
    if (!from) return std::move(from).error().with_key(made.key);
    made.bytes.from = *std::move(from);
    made_.tensors.push_back(std::move(made));
    return {};
  }

  error bad_share() const {
    return fail(errc::bad_format, "the share that rank 0 assigned does not fit the state of the rank").with_rank(rank_);
  }

  const const_local_state& held_;
  std::span<const described_object> objects_;
  std::int32_t rank_;
  save_assignment made_;
};

}  // namespace

result<save_assignment> take_share(std::span<const std::byte> share, const const_local_state& held,
                                   std::span<const described_object> objects, std::int32_t rank) {
  const std::optional<rank_share> read = read_share(share);
  if (!read) return fail(errc::bad_format, "the share that rank 0 assigned is malformed").with_rank(rank);
  return share_taker(held, objects, rank).take(*read);
}

}  // namespace shardmesh
