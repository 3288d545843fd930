// SPDX-License-Identifier: Apache-2.0
// Compares the flattening of nested shards with PyTorch's (seeds/flatten_nested.json): every field of every rank's
// answer, values included. tests/data/differences/flatten_nested.json lists the differences. Also compares the exact
// policy, alone and collective, with what the ranks really hold.
#include <array_tensor.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <differences.hpp>
#include <golden.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>
import shardmesh.state;
import shardmesh.test.states;

using namespace shardmesh;
using namespace states;
using nlohmann::json;
using test::array_tensor;

namespace {

// The boxes of the whole tensor that one rank really holds.
void true_boxes(const json& st, const extents& origin, std::vector<box>& boxes) {
  for (const json& s : st.at("local")) {
    extents begin = golden::to_extents(s.at("offsets"));
    for (std::size_t d = 0; d < std::min(begin.rank(), origin.rank()); ++d) begin[d] += origin[d];
    if (const json* inner = tagged(s.at("tensor"), "$sharded_tensor"))
      true_boxes(*inner, begin, boxes);
    else
      boxes.push_back({begin, golden::to_extents(s.at("sizes"))});
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

// Whether every level has one dtype. The tensors' requires_grad is known only from PyTorch's error.
bool one_dtype(const json& st, const json& dtype) {
  if (st.at("dtype") != dtype) return false;
  return std::all_of(st.at("local").begin(), st.at("local").end(), [&](const json& s) {
    const json* inner = tagged(s.at("tensor"), "$sharded_tensor");
    return inner ? one_dtype(*inner, dtype) : tagged(s.at("tensor"), "$tensor")->at("dtype") == dtype;
  });
}

// Whether the non-empty boxes hold each cell exactly once; equal boxes of several ranks count as one.
bool tiles(const std::set<box>& boxes, const extents& size) {
  std::vector<int> held(static_cast<std::size_t>(test::count_of(size)), 0);
  for (const box& b : boxes) {
    if (b.rank() != size.rank() || !lies_within(b, box::whole(size))) return false;
    for (const std::int64_t cell : cells_of(b, size)) ++held[static_cast<std::size_t>(cell)];
  }
  return std::all_of(held.begin(), held.end(), [](int times) { return times == 1; });
}

// The true content of a whole case.
struct truth {
  std::map<path, std::vector<std::vector<box>>> boxes;  // by key and rank
  std::map<path, std::int64_t> bases;                   // by key: elements hold their index plus this
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
      sizes[key] = golden::to_extents(st->at("size"));
      true_boxes(*st, extents::filled(sizes[key].rank(), 0), boxes[r]);
      for (const box& b : boxes[r])
        if (!b.is_empty()) all[key].insert(b);
      // No rank can report shards that belong to no rank.
      for (const json& s : st->at("shards"))
        if (const shard_metadata m = shard_of(s); !m.rank() && !m.where().is_empty()) all[key].insert(m.where());
      if (is_nested(*st)) t.nested.insert(key);
      t.is_consistent &= one_dtype(*st, st->at("dtype")) || !is_nested(*st);
    }
  }
  for (const path& key : t.nested) t.is_consistent &= tiles(all[key], sizes[key]) && properties_fit;
  return t;
}

// The constant by which a tensor's values exceed their elements' indices; nothing if it is not constant.
std::optional<std::int64_t> base_of(const array_tensor& t, const box& where, const extents& whole) {
  const auto cells = cells_of(where, whole);
  if (t.values.size() != cells.size() || cells.empty()) return std::nullopt;
  for (std::size_t i = 0; i < cells.size(); ++i)
    if (t.values[i] - cells[i] != t.values[0] - cells[0]) return std::nullopt;
  return t.values[0] - cells[0];
}

// Checks that a rank's flat tensors hold the boxes and values that the rank really holds.
void check_held(const dict& flat, truth& t, std::size_t rank) {
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
      if (s.metadata().where().is_empty()) continue;
      const auto base = base_of(s.tensor(), s.metadata().where(), st.size());
      REQUIRE(base);
      CHECK(t.bases.try_emplace(key, *base).first->second == *base);
    }
    CHECK(held == boxes[rank]);
  }
}

// Checks that the global metadata names, for every rank, the boxes that the rank really holds.
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

// "grid_2x2_4x3x5_o1_i1" is a "grid".
std::string kind_of(const json& c) {
  const auto name = c.at("name").get<std::string>();
  for (std::size_t i = 1; i < name.size(); ++i)
    if (name[i - 1] == '_' && std::isdigit(static_cast<unsigned char>(name[i]))) return name.substr(0, i - 1);
  return name;
}

json torch_path(const path& where) {
  json made = json::array();
  for (const path_key& key : where) made.push_back(key.is_index() ? json(key.index()) : json(std::string(key.name())));
  return made;
}

// One rank's answer in the golden file's form.
json answer_of(const dict& input, const result<flattened_state<array_tensor>>& flat) {
  json made{{"input_exception", nullptr}, {"exception", nullptr}, {"output", nullptr}};
  if (!flat) return made["exception"] = golden::refusal(flat.error())["exception"], made;
  made["output"] = dict_json(flat->dict);
  for (const char* list : {"dropped", "same_object", "flattened"}) made[list] = json::array();
  std::map<path, nested_outcome> outcomes;
  for (const nested_entry& entry : flat->report) outcomes[entry.where] = entry.outcome;
  const auto paths = input.spec().leaf_paths();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const auto kind = input.leaves()[i].kind();
    const bool is_tensor =
        kind == value_kind::tensor || kind == value_kind::dtensor || kind == value_kind::sharded_tensor;
    if (!is_tensor) continue;
    const auto known = outcomes.find(paths[i]);
    const auto outcome = known == outcomes.end() ? nested_outcome::kept : known->second;
    made[outcome == nested_outcome::dropped ? "dropped"
         : outcome == nested_outcome::kept  ? "same_object"
                                            : "flattened"]
        .push_back(torch_path(paths[i]));
  }
  made["exact"] = true;
  for (const value& v : flat->dict.leaves()) {
    if (!v.sharded_tensor()) continue;
    for (const auto& s : v.sharded_tensor()->local_shards())
      if (!s.is_nested() && !s.metadata().where().is_empty())
        made["exact"] =
            made["exact"] == true && base_of(s.tensor(), s.metadata().where(), v.sharded_tensor()->size()).has_value();
  }
  return made;
}

}  // namespace

TEST_CASE("flattening nested shards gives PyTorch's answer where that is right, and the true one everywhere",
          "[flatten_nested]") {
  golden::differences differences("flatten_nested", "cases");
  const json& file = golden::file("seeds/flatten_nested.json");
  for (const json& c : file.at("cases")) {
    INFO(c.at("name").get<std::string>());
    REQUIRE(c.at("ranks").size() == c.at("world").get<std::size_t>());
    const auto world = c.at("world").get<std::int32_t>();
    // The files do not record which tensors require gradients; PyTorch's error does.
    bool requires_grad = false;
    for (const json& r : c.at("ranks"))
      if (!r.at("exception").is_null())
        requires_grad |=
            r.at("exception").at("text").get<std::string>().find("local shard tensor requires_grad=True") !=
            std::string::npos;
    truth t = truth_of(c, !requires_grad);
    std::vector<dict> inputs;
    for (std::int32_t rank = 0; rank < world; ++rank) {
      const json& r = c.at("ranks")[static_cast<std::size_t>(rank)];
      inputs.push_back(reader{rank, requires_grad}.read(r.at("input")).value());
    }

    json tiling{{"tiles", nullptr}};
    std::map<path, std::set<box>> boxes;  // of flattened tensors
    std::map<path, extents> sizes;
    bool all_answered = true, any_flattened = false;
    for (std::int32_t rank = 0; rank < world; ++rank) {
      INFO("torch_compatible, rank " << rank);
      const auto at = static_cast<std::size_t>(rank);
      json theirs = c.at("ranks")[at];
      theirs["input"] = normal(theirs.at("input"));
      if (!theirs.at("output").is_null()) theirs["output"] = normal(theirs["output"]);
      const auto flat = flatten_nested_shards(
          inputs[at], {.policy = nested_policy::torch_compatible, .group = rank_group::world(world)});
      json ours = answer_of(inputs[at], flat);
      ours["input"] = dict_json(inputs[at]);
      differences.compare(c.at("name").get<std::string>() + "/" + std::to_string(rank), theirs, ours, kind_of(c));
      all_answered &= flat.has_value();
      if (!flat) continue;
      const bool any = std::any_of(flat->report.begin(), flat->report.end(), [](const nested_entry& entry) {
        return entry.outcome == nested_outcome::flattened;
      });
      any_flattened |= any;
      const auto paths = flat->dict.spec().leaf_paths();
      for (std::size_t i = 0; any && i < paths.size(); ++i) {
        const sharded* st = flat->dict.leaves()[i].sharded_tensor();
        if (!st) continue;
        sizes[paths[i]] = st->size();
        for (const auto& s : st->local_shards())
          if (!s.metadata().where().is_empty()) boxes[paths[i]].insert(s.metadata().where());
      }
      // PyTorch may confuse an empty shard with the one that begins at the same place. Our answer covers the tensor and
      // matches the rank's elements.
      if (theirs.at("exception").is_null()) continue;
      for (const auto& leaf : flat->dict.leaves()) {
        if (!leaf.sharded_tensor()) continue;
        CHECK(check_tensor(leaf.sharded_tensor()->metadata().shards, leaf.sharded_tensor()->size()));
      }
      check_held(flat->dict, t, at);
      CHECK(t.is_consistent);
    }
    if (all_answered && any_flattened)
      tiling["tiles"] = std::all_of(boxes.begin(), boxes.end(),
                                    [&](const auto& one) { return tiles(one.second, sizes.at(one.first)); });
    differences.compare(c.at("name").get<std::string>(), {{"tiles", c.at("tiles")}}, tiling, kind_of(c));

    // PyTorch cannot make a nested tensor without elements. Such a rank has no input, and nothing to lose.
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
      if (!flat) return errors[at] = to_string(flat.error()), result<void>{};
      made[at] = *std::move(flat);
      return {};
    });
    CHECK(ran);
    if (!t.is_consistent) {
      CHECK(std::all_of(errors.begin(), errors.end(), [&](const auto& e) { return !e.empty() && e == errors[0]; }));
      continue;
    }
    for (std::size_t rank = 0; rank < made.size(); ++rank) {
      INFO("exact, together, rank " << rank << ": " << errors[rank]);
      REQUIRE(made[rank]);
      if (!has_input(static_cast<std::int32_t>(rank))) continue;
      check_held(made[rank]->dict, t, rank);
      check_owners(made[rank]->dict, t);
    }
  }
  differences.finish();
}
