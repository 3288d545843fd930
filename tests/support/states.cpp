// SPDX-License-Identifier: Apache-2.0
// Bodies of shardmesh.test.states.
module;
#include <algorithm>
#include <array_tensor.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <golden.hpp>
#include <indices.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

module shardmesh.test.states;

import shardmesh.state;
import shardmesh.test.layouts;

using namespace shardmesh;
using nlohmann::json;
using test::array_tensor;

namespace states {

path path_of(const json& keys) {
  path made;
  for (const json& key : keys)
    made.push_back(key.is_string() ? path_key(key.get<std::string>()) : path_key(key.get<std::int64_t>()));
  return made;
}

const json* tagged(const json& j, const char* tag) {
  return j.is_object() && j.contains(tag) ? &j.at(tag) : nullptr;
}

const json* mapping_of(const json& j) {
  const json* entries = tagged(j, "$dict");
  return entries ? entries : tagged(j, "$odict");
}

const json* child_of(const json& j, const json& key) {
  if (const json* entries = mapping_of(j)) {
    for (const json& entry : *entries)
      if (entry[0] == key) return &entry[1];
    return nullptr;
  }
  const json* elements = tagged(j, "$tuple") ? tagged(j, "$tuple") : &j;
  if (!elements->is_array() || !key.is_number_integer()) return nullptr;
  const auto size = static_cast<std::int64_t>(elements->size());
  const std::int64_t index = key.get<std::int64_t>() < 0 ? key.get<std::int64_t>() + size : key.get<std::int64_t>();
  return index >= 0 && index < size ? &elements->at(static_cast<std::size_t>(index)) : nullptr;
}

shard_metadata shard_of(const json& j) {
  const std::string placement = j.at("placement").is_null() ? "" : j.at("placement").get<std::string>();
  return shard_metadata::make(golden::to_extents(j.at("offsets")), golden::to_extents(j.at("sizes")), placement)
      .value();
}

std::vector<std::int64_t> cells_of(const box& b, const extents& whole) {
  std::vector<std::int64_t> cells;
  indices::for_each_in(b, [&](const extents& at) { cells.push_back(indices::row_major(at, whole)); });
  return cells;
}

array_tensor reader::tensor(const json& t) const {
  array_tensor made = array_tensor::filled(golden::to_extents(t.at("shape")));
  made.type = parse_dtype(t.at("dtype").get<std::string>()).value();
  made.requires_grad = requires_grad;
  return made;
}

result<sharded> reader::sharded_tensor_of(const json& st, const extents& whole, const extents& origin) const {
  sharded_tensor_metadata metadata;
  metadata.size = golden::to_extents(st.at("size"));
  metadata.properties.type = parse_dtype(st.at("dtype").get<std::string>()).value();
  metadata.properties.requires_grad = st.at("requires_grad").get<bool>();
  for (const json& s : st.at("shards")) metadata.shards.push_back(shard_of(s));
  const rank_group group = rank_group::make(st.at("group").get<std::vector<std::int32_t>>()).value();
  std::vector<shard<array_tensor>> local;
  for (const json& s : st.at("local")) {
    const shard_metadata where = shard_of(s);
    const json& held = s.at("tensor");
    extents begin = origin;
    for (std::size_t d = 0; d < std::min(begin.rank(), where.offsets.rank()); ++d) begin[d] += where.offsets[d];
    result<shard<array_tensor>> made = fail(errc::ok, "");
    if (const json* inner = tagged(held, "$sharded_tensor")) {
      auto nested = sharded_tensor_of(*inner, whole, begin);
      if (!nested) return nested;
      made = shard<array_tensor>::make(*std::move(nested), where);
    } else {
      array_tensor t = tensor(*tagged(held, "$tensor"));
      // A shard of another rank than its tensor has no place in it, and the library must say so.
      if (t.sizes.rank() == whole.rank()) t.values = cells_of({begin, t.sizes}, whole);
      made = shard<array_tensor>::make(std::move(t), where);
    }
    if (!made) return std::move(made).take_error();
    local.push_back(*std::move(made));
  }
  return sharded::make(std::move(local), std::move(metadata), group, group.group_rank(rank).value());
}

result<value> reader::leaf(const json& j) const {
  if (j.is_null()) return value();
  if (j.is_boolean()) return value(j.get<bool>());
  if (j.is_number_integer()) return value(j.get<std::int64_t>());
  if (j.is_number_float()) return value(j.get<double>());
  if (j.is_string()) return value(j.get<std::string>());
  if (const json* t = tagged(j, "$tensor")) return value(tensor(*t));
  if (const json* f = tagged(j, "$float")) return value(std::strtod(f->get<std::string>().c_str(), nullptr));
  if (const json* st = tagged(j, "$sharded_tensor")) {
    const extents whole = golden::to_extents(st->at("size"));
    auto made = sharded_tensor_of(*st, whole, extents::filled(whole.rank(), 0));
    if (!made) return std::move(made).take_error();
    return value(*std::move(made));
  }
  if (const json* d = tagged(j, "$dtensor")) {
    const json& mesh = d->at("mesh");
    const std::vector<placement> placements = golden::to_placements(d->at("placements"));
    auto l = layout::make(device_mesh::make(golden::to_extents(mesh.at("shape")), {},
                                            mesh.at("ranks").get<std::vector<std::int32_t>>())
                              .value(),
                          placements, golden::to_extents(d->at("shape")))
                 .value();
    return value(dtensor<array_tensor>::make(l, rank, tensor(d->at("local"))).value());
  }
  return value(opaque_object{j.dump(), {}});
}

result<void> reader::add(state_dict_builder<array_tensor>& b, const json& j, const path_key& key) const {
  if (const json* entries = mapping_of(j)) {
    b.begin(key, node_kind::mapping);
    for (const json& entry : *entries)
      if (auto added = add(b, entry[1], path_of(json::array({entry[0]}))[0]); !added) return added;
    b.end();
    return {};
  }
  const json* tuple = tagged(j, "$tuple");
  if (tuple || j.is_array()) {
    b.begin(key, tuple ? node_kind::tuple : node_kind::sequence);
    for (const json& element : tuple ? *tuple : j)
      if (auto added = add(b, element, 0); !added) return added;
    b.end();
    return {};
  }
  auto made = leaf(j);
  if (!made) return std::move(made).take_error();
  b.value(key, *std::move(made));
  return {};
}

result<dict> reader::read(const json& j) const {
  state_dict_builder<array_tensor> b;
  if (auto added = add(b, j, 0); !added) return std::move(added).take_error();
  return b.finish();
}

namespace {

json shard_json(const shard_metadata& s) {
  const std::vector<std::int64_t> offsets(s.offsets.begin(), s.offsets.end()), sizes(s.sizes.begin(), s.sizes.end());
  return {{"offsets", offsets}, {"sizes", sizes}, {"placement", s.placement ? json(to_string(*s.placement)) : json()}};
}

json sharded_json(const sharded& st) {
  json made = {{"size", std::vector<std::int64_t>(st.size().begin(), st.size().end())},
               {"dtype", std::string(name(st.metadata().properties.type))},
               {"requires_grad", st.metadata().properties.requires_grad},
               {"group", st.group().globals()},
               {"shards", json::array()},
               {"local", json::array()}};
  for (const shard_metadata& s : st.metadata().shards) made["shards"].push_back(shard_json(s));
  for (const auto& s : st.local_shards()) {
    json one = shard_json(s.metadata());
    one["tensor"] = s.is_nested() ? json{{"$sharded_tensor", sharded_json(s.nested())}} : json("tensor");
    made["local"].push_back(std::move(one));
  }
  return made;
}

json leaf_json(const value& v) {
  const auto sizes = [](const extents& e) { return std::vector<std::int64_t>(e.begin(), e.end()); };
  switch (v.kind()) {
    case value_kind::boolean:
      return *v.boolean();
    case value_kind::integer:
      return *v.integer();
    case value_kind::floating:
      return *v.floating();
    case value_kind::text:
      return *v.text();
    case value_kind::object:
      return json::parse(v.object()->type_name);
    case value_kind::tensor:
      return {{"$tensor", sizes(v.tensor()->sizes)}};
    case value_kind::dtensor:
      return {{"$dtensor", sizes(v.dtensor()->size())}};
    case value_kind::sharded_tensor:
      return {{"$sharded_tensor", sharded_json(*v.sharded_tensor())}};
    default:
      return nullptr;
  }
}

}  // namespace

json without_values(const json& j) {
  if (const json* t = tagged(j, "$tensor")) return {{"$tensor", t->at("shape")}};
  if (const json* d = tagged(j, "$dtensor")) return {{"$dtensor", d->at("shape")}};
  if (const json* st = tagged(j, "$sharded_tensor")) {
    json made = *st;
    made.erase("spec");
    for (json& s : made["local"])
      s["tensor"] = tagged(s["tensor"], "$sharded_tensor") ? without_values(s["tensor"]) : json("tensor");
    return {{"$sharded_tensor", made}};
  }
  if (const json* entries = mapping_of(j)) {
    json made = json::array();
    for (const json& entry : *entries) made.push_back({entry[0], without_values(entry[1])});
    return {{"$dict", made}};
  }
  if (const json* elements = tagged(j, "$tuple")) return {{"$tuple", without_values(*elements)}};
  if (!j.is_array()) return j;
  json made = json::array();
  for (const json& element : j) made.push_back(without_values(element));
  return made;
}

json dict_json(const dict& d) {
  const auto nodes = d.spec().nodes();
  std::vector<json> built;
  std::size_t leaf = 0;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    if (nodes[node].kind == node_kind::leaf) {
      built.push_back(leaf_json(d.leaves()[leaf++]));
      continue;
    }
    json children = json::array();
    std::size_t at = built.size() - static_cast<std::size_t>(nodes[node].arity);
    for (const std::size_t child : d.spec().children(node)) {
      const path_key& key = d.spec().keys()[child];
      json& one = built[at++];
      if (nodes[node].kind != node_kind::mapping)
        children.push_back(std::move(one));
      else
        children.push_back({key.is_index() ? json(key.index()) : json(std::string(key.name())), std::move(one)});
    }
    built.resize(built.size() - static_cast<std::size_t>(nodes[node].arity));
    if (nodes[node].kind == node_kind::mapping) children = json{{"$dict", std::move(children)}};
    if (nodes[node].kind == node_kind::tuple) children = json{{"$tuple", std::move(children)}};
    built.push_back(std::move(children));
  }
  return built.front();
}

}  // namespace states
