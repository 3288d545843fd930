// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.fsdp;

namespace shardmesh {

sharding_spec rewrite_spec_if_needed(sharding_spec spec, device where, std::int32_t rank) {
  if (auto* chunks = std::get_if<chunk_sharding_spec>(&spec))
    for (remote_device& placement : chunks->placements)
      if (placement.rank == rank) placement.where = where;
  return spec;
}

result<remote_device> remote_device_of(std::int32_t rank, std::string_view device_type, std::int32_t devices_per_node) {
  std::string type(device_type);
  for (char& c : type)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  SHARDMESH_TRY(device where, parse_device(type));
  if (type == "cpu") return remote_device{rank, {}, where};
  if (devices_per_node < 1)
    return fail(errc::invalid_argument, "a rank has no device if nodes have none")
        .with_rank(rank)
        .with_values("at least 1 device per node", std::to_string(devices_per_node));
  SHARDMESH_TRY(where, parse_device(type + ":" + std::to_string(rank % devices_per_node)));
  return remote_device{rank, {}, where};
}

}  // namespace shardmesh

namespace shardmesh::detail {

result<layout> lifted_layout(const layout& l, const device_mesh& mesh, std::int32_t rank) {
  if (l.mesh() == mesh) return l;
  const auto other = [&] {
    return fail(errc::invalid_argument,
                "the dtensor is over another mesh than FSDP's, and not over its last dimensions")
        .with_rank(rank)
        .with_values(to_string(mesh), to_string(l.mesh()));
  };
  const auto at = mesh.coordinate_of(rank);
  if (!at || l.mesh().rank() > mesh.rank()) return other();
  const std::size_t before = mesh.rank() - l.mesh().rank();
  for (std::size_t d = before; d < mesh.rank(); ++d)
    if (l.mesh().sizes()[d - before] != mesh.sizes()[d]) return other();
  // Both meshes must have the same ranks: those at `rank`'s coordinate in the first dimensions and at any in the
  // others.
  extents coordinate = *at;
  for (std::size_t d = before; d < mesh.rank(); ++d) coordinate[d] = 0;
  for (std::int64_t p = 0; p < l.mesh().size(); ++p) {
    if (l.mesh().rank_of_position(p) != mesh.rank_at(coordinate)) return other();
    for (std::size_t d = mesh.rank(); d-- > before && ++coordinate[d] == mesh.sizes()[d];) coordinate[d] = 0;
  }
  std::vector<placement> placements(before, placement::replicate());
  std::vector<split_rule> rules(before);
  placements.insert(placements.end(), l.placements().begin(), l.placements().end());
  rules.insert(rules.end(), l.rules().begin(), l.rules().end());
  return layout::make(mesh, std::move(placements), l.shape(), rules);
}

result<void> check_holds(const layout& has, const layout& wants) {
  for (std::int64_t p = 0; p < wants.mesh().size(); ++p) {
    const std::int32_t rank = wants.mesh().rank_of_position(p);
    const auto held = has.boxes(rank);
    for (const placed_box& want : wants.boxes(rank)) {
      std::int64_t found = 0;
      for (const placed_box& h : held)
        if (const auto part = intersect(h.where, want.where)) found += part->volume();
      if (found != want.where.volume())
        return fail(errc::unsupported, "with these uneven cuts, a rank does not hold all of its chunk")
            .with_rank(rank)
            .with_box(want.where)
            .with_values(to_string(wants), to_string(has))
            .with_hint("use sharded_state_dict, which moves the missing elements, or chunk_tensor, which needs none");
    }
  }
  return {};
}

result<void> copy_held(const layout& has, const const_tensor_view& from, const layout& wants, const tensor_view& to,
                       std::int32_t rank) {
  const auto held = has.boxes(rank);
  for (const placed_box& want : wants.boxes(rank))
    for (const placed_box& h : held) {
      const auto part = intersect(h.where, want.where);
      if (!part) continue;
      const auto inside = [&](const placed_box& b) { return shifted(relative_to(*part, b.where), b.local_offsets); };
      SHARDMESH_TRY(copy_between(subview(to, inside(want)), subview(from, inside(h))));
    }
  return {};
}

result<void> gather_layout(const layout& from, const const_tensor_view& source, const layout& to,
                           const tensor_view& destination, const result<void>& mine, communicator_ref comm,
                           const call_options& call) {
  tensor_transfer transfer{{}, {}, source.type, source.type};
  SHARDMESH_TRY(transfer.from, distribute(from));
  SHARDMESH_TRY(transfer.to, distribute(to));
  bound_transfers work;
  work.transfers.push_back(std::move(transfer));
  work.keys.emplace_back("all_gather_dtensor");
  work.from.emplace_back().slots = {source};
  work.to.emplace_back().slots = {destination};
  fsdp_profile profile;
  return run_transfers(mine, std::move(work), comm, {}, call.named("all_gather_dtensor"), profile);
}

extents flatten_order(const const_tensor_view& local) {
  if (!memory_order(local.sizes, local.strides)) return {};
  extents order;
  for (std::size_t d = 0; d < local.sizes.rank(); ++d) order.push_back(static_cast<std::int64_t>(d));
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    const auto place = [&](std::int64_t dim) {
      const auto d = static_cast<std::size_t>(dim);
      return std::tuple(-local.strides[d], -std::max<std::int64_t>(local.sizes[d], 1), dim);
    };
    return place(a) < place(b);
  });
  return order;
}

error no_tensor(value_kind kind) {
  return fail(errc::invalid_argument, "FSDP needs a tensor or a dtensor with a part on this rank")
      .with_values("a tensor", std::string(name(kind)));
}

}  // namespace shardmesh::detail
