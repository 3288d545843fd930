// SPDX-License-Identifier: Apache-2.0
// shardmesh's view of tiny: its matrix is a tensor, its store a tree, its network a communicator. A framework has to
// write only this.
#pragma once
#include <shardmesh/adapter.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "../socket_communicator.hpp"
#include "framework.hpp"

import shardmesh;
import shardmesh.core;
import shardmesh.state;
import shardmesh.tree;

template <>
struct shardmesh::adapter<tiny::matrix> {
  static tensor_view view(tiny::matrix& m) {
    return {reinterpret_cast<std::byte*>(m.values.data()), dtype::float32, {}, {m.rows, m.columns}, {m.columns, 1}};
  }
  static const_tensor_view view(const tiny::matrix& m) {
    return {
        reinterpret_cast<const std::byte*>(m.values.data()), dtype::float32, {}, {m.rows, m.columns}, {m.columns, 1}};
  }
};
static_assert(shardmesh::local_tensor<tiny::matrix>);

template <>
struct shardmesh::node_adapter<tiny::parameter_store> {
  static node_kind kind(const tiny::parameter_store& s) {
    return std::holds_alternative<tiny::parameter_store::group>(s.is) ? node_kind::mapping : node_kind::leaf;
  }
  template <class Store, class Visit>
  static void children(Store& s, Visit&& visit) {
    if (auto* group = std::get_if<tiny::parameter_store::group>(&s.is))
      for (auto& [name, child] : *group)
        if (!visit(name, child)) return;
  }
};
static_assert(shardmesh::state_node<tiny::parameter_store>);

namespace tiny {

inline sockets::socket_communicator communicator_of(const meeting_point& meeting, std::int32_t rank) {
  std::vector<sockets::peer_link> peers;
  for (const auto& [data, control] : connect_ranks(meeting, rank)) {
    sockets::peer_link& link = peers.emplace_back();
    link.data = sockets::file_descriptor(data);
    link.control = sockets::file_descriptor(control);
  }
  return sockets::socket_communicator(std::make_shared<sockets::socket_rank>(rank, std::move(peers)));
}

// The local state of a rank whose matrices all have the layout `cut`, for collective save and load. The store must
// outlive it.
inline shardmesh::local_state local_view(parameter_store& store, const shardmesh::layout& cut, std::int32_t rank) {
  shardmesh::local_state made;
  shardmesh::visit_leaves(store, [&](const shardmesh::path& where, parameter_store& leaf) {
    if (auto* tensor = std::get_if<matrix>(&leaf.is)) {
      auto& held = made.tensors.emplace_back();
      held.where = where;
      held.shape = cut.shape();
      held.type = shardmesh::dtype::float32;
      for (const shardmesh::placed_box& b : cut.boxes(rank))
        held.parts.push_back({b.where, shardmesh::adapter<matrix>::view(*tensor)});
    } else {
      auto& held = made.objects.emplace_back();
      held.where = where;
      held.leaves = {shardmesh::plain_value(std::get<std::int64_t>(leaf.is))};
    }
  });
  return made;
}

// Copies the counters that a load returned into the store.
inline void take_counters(parameter_store& store, const shardmesh::local_state& loaded) {
  for (const shardmesh::local_state_object& object : loaded.objects)
    if (parameter_store* leaf = shardmesh::find(store, object.where))
      leaf->counter() = std::get<std::int64_t>(object.leaves.front());
}

}  // namespace tiny
