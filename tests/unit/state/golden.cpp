// SPDX-License-Identifier: Apache-2.0
// State dicts against what PyTorch did: set_element and get_element (seeds/traverse.json), and flattening of nested
// shards (seeds/flatten_nested.json). Every case is visited; where the answers differ, a rule says why ours is right.
#include <array_tensor.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
import shardmesh.state;

using namespace shardmesh;
using nlohmann::json;
using test::array_tensor;

namespace {

using dict = state_dict<array_tensor>;
using value = state_value<array_tensor>;
using sharded = sharded_tensor<array_tensor>;

json golden(const std::string& name) {
  return json::parse(std::ifstream(std::string(SHARDMESH_TEST_DATA "/golden/seeds/") + name));
}

extents extents_of(const json& numbers) {
  return extents(numbers.get<std::vector<std::int64_t>>());
}

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

shard_metadata shard_of(const json& j) {
  const std::string placement = j.at("placement").is_null() ? "" : j.at("placement").get<std::string>();
  return shard_metadata::make(extents_of(j.at("offsets")), extents_of(j.at("sizes")), placement).value();
}

// The row-major index in a tensor of sizes `whole` of each element of a box: what a tensor of a test holds.
std::vector<std::int64_t> cells_of(const box& b, const extents& whole) {
  std::vector<std::int64_t> cells;
  extents at = b.offsets;
  if (b.is_empty()) return cells;
  while (true) {
    std::int64_t index = 0;
    for (std::size_t d = 0; d < whole.rank(); ++d) index = index * whole[d] + at[d];
    cells.push_back(index);
    std::size_t d = whole.rank();
    while (d > 0 && ++at[d - 1] == b.end(d - 1)) --d, at[d] = b.offsets[d];
    if (d == 0) return cells;
  }
}

// One rank of a golden case.
struct reader {
  std::int32_t rank = 0;
  bool requires_grad = false;  // the files do not say it of tensors

  array_tensor tensor(const json& t) const {
    array_tensor made = array_tensor::filled(extents_of(t.at("shape")));
    made.type = parse_dtype(t.at("dtype").get<std::string>()).value();
    made.requires_grad = requires_grad;
    return made;
  }

  // Tensors of shards hold the indices of the elements that they claim.
  result<sharded> sharded_tensor_of(const json& st, const extents& whole, const extents& origin) const {
    sharded_tensor_metadata metadata;
    metadata.size = extents_of(st.at("size"));
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

  result<value> leaf(const json& j) const {
    if (j.is_null()) return value();
    if (j.is_boolean()) return value(j.get<bool>());
    if (j.is_number_integer()) return value(j.get<std::int64_t>());
    if (j.is_number_float()) return value(j.get<double>());
    if (j.is_string()) return value(j.get<std::string>());
    if (const json* t = tagged(j, "$tensor")) return value(tensor(*t));
    if (const json* f = tagged(j, "$float")) return value(std::strtod(f->get<std::string>().c_str(), nullptr));
    if (const json* st = tagged(j, "$sharded_tensor")) {
      const extents whole = extents_of(st->at("size"));
      auto made = sharded_tensor_of(*st, whole, extents::filled(whole.rank(), 0));
      if (!made) return std::move(made).take_error();
      return value(*std::move(made));
    }
    if (const json* d = tagged(j, "$dtensor")) {
      const json& mesh = d->at("mesh");
      std::vector<placement> placements;
      for (const json& p : d->at("placements"))
        placements.push_back(p.at("type") == "Shard" ? placement::shard(p.at("dim").get<std::int32_t>())
                                                     : placement::replicate());
      auto l = layout::make(device_mesh::make(extents_of(mesh.at("shape")), {},
                                              mesh.at("ranks").get<std::vector<std::int32_t>>())
                                .value(),
                            placements, extents_of(d->at("shape")))
                   .value();
      return value(dtensor<array_tensor>::make(l, rank, tensor(d->at("local"))).value());
    }
    return value(opaque_object{j.dump(), {}});
  }

  result<void> add(state_dict_builder<array_tensor>& b, const json& j, const path_key& key) const {
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

  result<dict> read(const json& j) const {
    state_dict_builder<array_tensor> b;
    if (auto added = add(b, j, 0); !added) return std::move(added).take_error();
    return b.finish();
  }
};

// What a tensor of a test looks like in JSON, ours and PyTorch's: no values, which the tests compare on their own.
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

// What lies at a path in PyTorch's terms, or null; and the kind of container that a key would be looked up in.
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

}  // namespace

TEST_CASE("set gives what PyTorch's set_element gives, and more where a place can be made") {
  std::size_t visited = 0, better = 0;
  const json file = golden("traverse.json");
  for (const json& c : file.at("set_element")) {
    INFO(c.dump());
    ++visited;
    dict d = reader{}.read(c.at("root")).value();
    const dict before = d;
    const path where = path_of(c.at("path"));
    const auto set = d.set(where, reader{}.leaf(c.at("value")).value());
    if (c.at("exception").is_null()) {
      REQUIRE(set);
      CHECK(dict_json(d) == without_values(c.at("result")));
      continue;
    }
    // PyTorch raises. Ours is better by rule where the place can be made: an index is a key like any in a mapping, and
    // an element of a tuple can be exchanged. Otherwise nothing has changed.
    const json* parent = &c.at("root");
    for (std::size_t i = 0; i + 1 < where.size() && parent; ++i) parent = child_of(*parent, c.at("path")[i]);
    const bool index_in_mapping = parent && mapping_of(*parent) && !where.empty() && where.back().is_index();
    const bool element_of_tuple = parent && tagged(*parent, "$tuple") && child_of(*parent, c.at("path").back());
    CHECK(set.has_value() == (index_in_mapping || element_of_tuple));
    if (!set) {
      CHECK(d == before);
      CHECK((set.cause().code == errc::invalid_argument || set.cause().code == errc::out_of_bounds));
      continue;
    }
    ++better;
    CHECK(*d.find(where) == reader{}.leaf(c.at("value")).value());
    CHECK(d.size() == before.size() + (index_in_mapping ? 1 : 0));
  }
  CHECK(visited == 48);
  CHECK(better == 4);
}

TEST_CASE("find gives what PyTorch's get_element gives, and by typed keys") {
  const json file = golden("traverse.json");
  const json& root = file.at("get_element_root").at("$dict").is_array() ? file.at("get_element_root") : json();
  const dict d = reader{}.read(root).value();
  std::size_t visited = 0;
  for (const json& c : file.at("get_element")) {
    INFO(c.dump());
    ++visited;
    const path where = path_of(c.at("path"));
    const json* there = &root;
    bool through_tuple = false, index_in_mapping = false;
    for (const json& key : c.at("path")) {
      if (!there) break;
      through_tuple |= tagged(*there, "$tuple") != nullptr;
      index_in_mapping |= mapping_of(*there) != nullptr && key.is_number_integer();
      there = child_of(*there, key);
    }
    CHECK(d.contains(where) == (there != nullptr));
    if (there) CHECK(dict_json(d.subtree(where).value()) == without_values(*there));
    // PyTorch agrees, but that it raises one past the end of a list and never looks into tuples or for integer keys.
    const bool pytorch_found = c.at("exception").is_null() && c.at("result") != c.at("default");
    if (pytorch_found) {
      REQUIRE(there);
      CHECK(without_values(c.at("result")) == without_values(*there));
    } else {
      CHECK((there == nullptr || through_tuple || index_in_mapping));
    }
  }
  CHECK(visited == 31);
}

namespace {

// What one rank truly holds of one tensor: boxes of the whole tensor.
void true_boxes(const json& st, const extents& origin, std::vector<box>& boxes) {
  for (const json& s : st.at("local")) {
    extents begin = extents_of(s.at("offsets"));
    for (std::size_t d = 0; d < std::min(begin.rank(), origin.rank()); ++d) begin[d] += origin[d];
    if (const json* inner = tagged(s.at("tensor"), "$sharded_tensor"))
      true_boxes(*inner, begin, boxes);
    else
      boxes.push_back({begin, extents_of(s.at("sizes"))});
  }
}

void sharded_leaves(const json& j, path& where, std::map<path, const json*>& found) {
  const auto into = [&](const json& key, const json& child) {
    where.push_back(path_of(json::array({key}))[0]);
    sharded_leaves(child, where, found);
    where.pop_back();
  };
  if (const json* entries = mapping_of(j)) {
    for (const json& entry : *entries) into(entry[0], entry[1]);
  } else if (const json* st = tagged(j, "$sharded_tensor")) {
    found[where] = st;
  } else {
    const json& elements = tagged(j, "$tuple") ? *tagged(j, "$tuple") : j;
    if (!elements.is_array()) return;
    for (std::size_t i = 0; i < elements.size(); ++i) into(i, elements[i]);
  }
}

bool is_nested(const json& st) {
  return std::any_of(st.at("local").begin(), st.at("local").end(),
                     [](const json& s) { return tagged(s.at("tensor"), "$sharded_tensor") != nullptr; });
}

// Every level has one dtype and one requires_grad (which only PyTorch's error tells of tensors).
bool one_dtype(const json& st, const json& dtype) {
  if (st.at("dtype") != dtype) return false;
  return std::all_of(st.at("local").begin(), st.at("local").end(), [&](const json& s) {
    const json* inner = tagged(s.at("tensor"), "$sharded_tensor");
    return inner ? one_dtype(*inner, dtype) : tagged(s.at("tensor"), "$tensor")->at("dtype") == dtype;
  });
}

// Whether the non-empty boxes hold each cell exactly once, equal boxes of several ranks counting as one.
bool tiles(const std::set<box>& boxes, const extents& size) {
  std::vector<int> held(static_cast<std::size_t>(test::count_of(size)), 0);
  for (const box& b : boxes) {
    if (b.rank() != size.rank() || !lies_within(b, box::whole(size))) return false;
    for (const std::int64_t cell : cells_of(b, size)) ++held[static_cast<std::size_t>(cell)];
  }
  return std::all_of(held.begin(), held.end(), [](int times) { return times == 1; });
}

// What a whole case is in truth.
struct truth {
  std::map<path, std::vector<std::vector<box>>> boxes;  // by key and rank
  std::set<path> nested;                                // keys that are nested on some rank
  bool is_consistent = true;                            // every nested key is a tensor
};

truth truth_of(const json& c, bool properties_fit) {
  truth t;
  const std::size_t world = c.at("ranks").size();
  std::map<path, std::set<box>> all;
  std::map<path, extents> sizes;
  for (std::size_t r = 0; r < world; ++r) {
    std::map<path, const json*> leaves;
    path where;
    sharded_leaves(c.at("ranks")[r].at("input"), where, leaves);
    for (const auto& [key, st] : leaves) {
      auto& boxes = t.boxes[key];
      boxes.resize(world);
      sizes[key] = extents_of(st->at("size"));
      true_boxes(*st, extents::filled(sizes[key].rank(), 0), boxes[r]);
      for (const box& b : boxes[r])
        if (!b.is_empty()) all[key].insert(b);
      // Shards that belong to no rank are held by nobody whom one could ask.
      for (const json& s : st->at("shards"))
        if (const shard_metadata m = shard_of(s); !m.rank() && !m.where().is_empty()) all[key].insert(m.where());
      if (is_nested(*st)) t.nested.insert(key);
      t.is_consistent &= one_dtype(*st, st->at("dtype")) || !is_nested(*st);
    }
  }
  for (const path& key : t.nested) t.is_consistent &= tiles(all[key], sizes[key]) && properties_fit;
  return t;
}

// A rank's flat tensors hold what it holds in truth.
void check_held(const dict& flat, const truth& t, std::size_t rank) {
  for (const auto& [key, boxes] : t.boxes) {
    INFO(to_string(key) << " on rank " << rank);
    const value* found = flat.find(key);
    REQUIRE(found != nullptr);  // no key is lost
    const sharded& st = *found->sharded_tensor();
    CHECK(st.nesting() == 0);
    std::vector<box> held;
    for (const auto& s : st.local_shards()) {
      held.push_back(s.metadata().where());
      CHECK(s.metadata().rank() == static_cast<std::int32_t>(rank));
      CHECK(s.tensor().values == cells_of(s.metadata().where(), st.size()));
    }
    CHECK(held == boxes[rank]);
  }
}

// The global metadata says of every rank that it names what that rank holds in truth.
void check_owners(const dict& flat, const truth& t) {
  for (const path& key : t.nested) {
    INFO(to_string(key));
    const sharded& st = *flat.find(key)->sharded_tensor();
    std::map<std::int32_t, std::multiset<box>> named;
    std::set<box> all;
    for (const shard_metadata& s : st.metadata().shards) {
      if (s.where().is_empty()) continue;
      all.insert(s.where());
      if (s.rank()) named[*s.rank()].insert(s.where());
    }
    CHECK(tiles(all, st.size()));
    for (const auto& [rank, boxes] : named) {
      std::multiset<box> held;
      for (const box& b : t.boxes.at(key)[static_cast<std::size_t>(rank)])
        if (!b.is_empty()) held.insert(b);
      CHECK(boxes == held);
    }
  }
}

}  // namespace

TEST_CASE("flattening nested shards gives PyTorch's answer where that is right, and the true one everywhere") {
  std::size_t visited = 0, equal_to_pytorch = 0, better = 0, refused = 0;
  const json file = golden("flatten_nested.json");
  for (const json& c : file.at("cases")) {
    INFO(c.at("name").get<std::string>());
    ++visited;
    const auto world = c.at("world").get<std::int32_t>();
    // The files do not say which tensors require gradients; PyTorch's error does.
    bool requires_grad = false;
    for (const json& r : c.at("ranks"))
      if (!r.at("exception").is_null())
        requires_grad |=
            r.at("exception").at("text").get<std::string>().find("local shard tensor requires_grad=True") !=
            std::string::npos;
    const truth t = truth_of(c, !requires_grad);
    std::vector<dict> inputs;
    for (std::int32_t rank = 0; rank < world; ++rank) {
      const json& r = c.at("ranks")[static_cast<std::size_t>(rank)];
      inputs.push_back(reader{rank, requires_grad}.read(r.at("input")).value());
    }

    for (std::int32_t rank = 0; rank < world; ++rank) {
      INFO("torch_compatible, rank " << rank);
      const auto at = static_cast<std::size_t>(rank);
      const json& r = c.at("ranks")[at];
      const auto flat = flatten_nested_shards(
          inputs[at], {.policy = nested_policy::torch_compatible, .group = rank_group::world(world)});
      // PyTorch makes one name of the keys 0 and "0" and keeps the value that comes last: ours refuses to lose one.
      std::set<path> names;
      bool collides = false;
      for (const path& p : inputs[at].spec().leaf_paths()) {
        path as_names;
        for (const path_key& key : p) as_names.push_back(key.is_index() ? path_key(std::to_string(key.index())) : key);
        collides |= !names.insert(as_names).second;
      }
      if (collides) {
        REQUIRE(!flat);
        CHECK(flat.cause().code == errc::duplicate_key);
      } else if (r.at("exception").is_null()) {
        REQUIRE(flat);
        CHECK(dict_json(flat->dict) == without_values(r.at("output")));
        ++equal_to_pytorch;
      } else if (flat) {
        // PyTorch took an empty shard for the one that begins at the same place: this answer covers and holds.
        for (const auto& leaf : flat->dict.leaves()) {
          if (!leaf.sharded_tensor()) continue;
          CHECK(check_tensor(leaf.sharded_tensor()->metadata().shards, leaf.sharded_tensor()->size()));
          for (const auto& s : leaf.sharded_tensor()->local_shards())
            if (!s.is_nested())
              CHECK(s.tensor().values == cells_of(s.metadata().where(), leaf.sharded_tensor()->size()));
        }
        CHECK(t.is_consistent);
      }
    }

    // PyTorch cannot make a nested tensor without elements: such a rank has no input, and nothing to lose.
    const auto has_input = [&](std::int32_t rank) {
      return !c.at("ranks")[static_cast<std::size_t>(rank)].at("input").is_null();
    };
    for (std::int32_t rank = 0; rank < world; ++rank) {
      INFO("exact, alone, rank " << rank);
      const auto at = static_cast<std::size_t>(rank);
      const auto flat = flatten_nested_shards(inputs[at]);
      if (t.is_consistent) REQUIRE(flat);
      if (flat && has_input(rank)) check_held(flat->dict, t, at);
      if (flat) CHECK(flat->dict.spec() == inputs[at].spec());
    }

    std::vector<std::optional<flattened_state<array_tensor>>> made(inputs.size());
    std::vector<std::string> errors(inputs.size());
    const auto ran = run_ranks(world, [&](any_communicator& comm) -> result<void> {
      const auto at = static_cast<std::size_t>(comm.rank());
      auto flat = flatten_nested_shards(inputs[at], comm, rank_group::world(world));
      if (!flat) return errors[at] = to_string(flat.cause()), result<void>{};
      made[at] = *std::move(flat);
      return {};
    });
    CHECK(ran);
    if (!t.is_consistent) {
      ++refused;
      CHECK(std::all_of(errors.begin(), errors.end(), [&](const auto& e) { return !e.empty() && e == errors[0]; }));
      continue;
    }
    for (std::size_t rank = 0; rank < made.size(); ++rank) {
      INFO("exact, together, rank " << rank << ": " << errors[rank]);
      REQUIRE(made[rank]);
      if (!has_input(static_cast<std::int32_t>(rank))) continue;
      check_held(made[rank]->dict, t, rank);
      check_owners(made[rank]->dict, t);
      const bool pytorch_exact = c.at("ranks")[rank].at("exception").is_null();
      better += pytorch_exact ? 0 : 1;
    }
  }
  CHECK(visited == 103);
  CHECK(refused == 8);
  CHECK(equal_to_pytorch > 200);
  CHECK(better > 5);
}
