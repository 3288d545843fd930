// SPDX-License-Identifier: Apache-2.0
// Implements shardmesh.test.states.
module;
#include <algorithm>
#include <answers.hpp>
#include <array_tensor.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <golden.hpp>
#include <indices.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sha256.hpp>
#include <stdexcept>
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

namespace {

// The digest of whole numbers as little-endian bytes in the tensor's dtype.
std::string digest_of(const array_tensor& t) {
  const auto size = static_cast<std::size_t>(item_bytes(t.type));
  std::vector<std::byte> bytes(t.values.size() * size);
  const auto count = static_cast<std::int64_t>(t.values.size());
  const const_tensor_view from{reinterpret_cast<const std::byte*>(t.values.data()), dtype::int64, {}, {count}, {1}};
  if (!copy(tensor_view{bytes.data(), t.type, {}, {count}, {1}}, from))
    throw std::runtime_error("numbers cannot be made " + std::string(name(t.type)));
  return test::sha256(bytes);
}

std::int64_t whole_number(const json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!value.is_number()) throw std::runtime_error("not a number: " + value.dump());
  const double number = value.get<double>();
  if (number != std::floor(number))
    throw std::runtime_error("tensors of these files hold whole numbers: " + value.dump());
  return static_cast<std::int64_t>(number);
}

}  // namespace

array_tensor reader::tensor(const json& t) const {
  array_tensor made = array_tensor::filled(golden::to_extents(t.at("shape")));
  made.type = parse_dtype(t.at("dtype").get<std::string>()).value();
  made.requires_grad = requires_grad;
  if (t.at("values").size() != made.values.size()) throw std::runtime_error("values and shape differ: " + t.dump());
  for (std::size_t i = 0; i < made.values.size(); ++i) made.values[i] = whole_number(t["values"][i]);
  return made;
}

array_tensor reader::tensor(const json& t, const std::vector<std::int64_t>& cells) const {
  if (t.contains("values")) return tensor(t);
  array_tensor made = array_tensor::filled(golden::to_extents(t.at("shape")));
  made.type = parse_dtype(t.at("dtype").get<std::string>()).value();
  made.requires_grad = requires_grad;
  for (std::int64_t base = 0; base < 1000; ++base) {
    for (std::size_t i = 0; i < cells.size(); ++i) made.values.at(i) = cells[i] + base;
    if (digest_of(made) == t.at("sha256").get<std::string>()) return made;
  }
  throw std::runtime_error("values that are not the indices of elements: " + t.dump());
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
      const json& t = *tagged(held, "$tensor");
      // A shard with another number of dimensions than its tensor does not fit, and the library must report it.
      const extents sizes = golden::to_extents(t.at("shape"));
      made = shard<array_tensor>::make(
          sizes.rank() == whole.rank() ? tensor(t, cells_of({begin, sizes}, whole)) : tensor(t), where);
    }
    if (!made) return std::move(made).error();
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
    if (!made) return std::move(made).error();
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
  if (!made) return std::move(made).error();
  b.value(key, *std::move(made));
  return {};
}

result<dict> reader::read(const json& j) const {
  state_dict_builder<array_tensor> b;
  if (auto added = add(b, j, 0); !added) return std::move(added).error();
  return b.finish();
}

namespace {

json tensor_json(const array_tensor& t) {
  json made{{"dtype", std::string(name(t.type))}, {"shape", golden::to_json(t.sizes)}};
  if (t.values.size() > 16)  // as in the file
    made["sha256"] = digest_of(t);
  else if (t.type == dtype::boolean)
    for (made["values"] = json::array(); const std::int64_t v : t.values) made["values"].push_back(v != 0);
  else
    made["values"] = t.values;
  return made;
}

json sharded_json(const sharded& st) {
  json made = {{"size", golden::to_json(st.size())},
               {"dtype", std::string(name(st.metadata().properties.type))},
               {"requires_grad", st.metadata().properties.requires_grad},
               {"group", st.group().globals()},
               {"shards", answers::shards(st.metadata().shards)},
               {"spec", answers::spec(infer_sharding_spec_from_shards_metadata(st.metadata().shards))},
               {"local", json::array()}};
  for (const auto& s : st.local_shards()) {
    json one = answers::shard(s.metadata());
    one["tensor"] = s.is_nested() ? json{{"$sharded_tensor", sharded_json(s.nested())}}
                                  : json{{"$tensor", tensor_json(s.tensor())}};
    made["local"].push_back(std::move(one));
  }
  return made;
}

json float_json(double value) {
  if (std::isfinite(value)) return value;
  return {{"$float", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"}};
}

json leaf_json(const value& v) {
  switch (v.kind()) {
    case value_kind::boolean:
      return *v.boolean();
    case value_kind::integer:
      return *v.integer();
    case value_kind::floating:
      return float_json(*v.floating());
    case value_kind::text:
      return *v.text();
    case value_kind::object:
      return json::parse(v.object()->type_name);
    case value_kind::tensor:
      return {{"$tensor", tensor_json(*v.tensor())}};
    case value_kind::dtensor: {
      const auto& placed = *v.dtensor();
      return {{"$dtensor",
               {{"dtype", std::string(name(placed.local().type))},
                {"shape", golden::to_json(placed.size())},
                {"mesh", answers::mesh(placed.layout().mesh())},
                {"placements", answers::placements(placed.layout().placements())},
                {"local", tensor_json(placed.local())}}}};
    }
    case value_kind::sharded_tensor:
      return {{"$sharded_tensor", sharded_json(*v.sharded_tensor())}};
    default:
      return nullptr;
  }
}

}  // namespace

json normal(const json& j) {
  if (const json* entries = mapping_of(j)) {
    json made = json::array();
    for (const json& entry : *entries) made.push_back({entry[0], normal(entry[1])});
    return {{"$dict", made}};
  }
  if (const json* f = tagged(j, "$float")) return float_json(std::strtod(f->get<std::string>().c_str(), nullptr));
  if (const json* elements = tagged(j, "$tuple")) return {{"$tuple", normal(*elements)}};
  if (!j.is_array()) return j;
  json made = json::array();
  for (const json& element : j) made.push_back(normal(element));
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
