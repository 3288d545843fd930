// SPDX-License-Identifier: Apache-2.0
// Full, sharded and local state dicts against PyTorch's (golden/seeds/fsdp_flat.json): keys in order, kinds, metadata
// and the bytes of every rank's part, over threads as ranks. Where PyTorch fails, every part must still be what its box
// says. Rules where ours differs stand in `expected_entries`.
#include <openssl/sha.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fsdp_models.hpp"
import shardmesh.fsdp;

using namespace shardmesh;
using fsdp_models::rank_memory;
using nlohmann::json;

namespace {

using state = state_dict<host_tensor>;

std::string sha256(std::span<const std::byte> bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  std::string text;
  for (const unsigned char byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

json to_json(const extents& e) {
  json made = json::array();
  for (const std::int64_t v : e) made.push_back(v);
  return made;
}

json to_json(const shard_metadata& m) {
  return {{"offsets", to_json(m.offsets)}, {"sizes", to_json(m.sizes)}, {"placement", to_string(*m.placement)}};
}

json to_json(const placement& p) {
  if (p.kind == placement_kind::shard) return {{"type", "Shard"}, {"dim", p.dim}};
  return {{"type", "Replicate"}};
}

// A value in the form of the golden file.
json to_json(const std::string& key, const state_value<host_tensor>& value) {
  json made{{"key", key}};
  if (const auto* tensor = value.tensor()) {
    made["kind"] = "tensor";
    made["size"] = to_json(tensor->sizes());
    made["dtype"] = name(tensor->type());
    made["sha256"] = sha256(tensor->bytes());
  } else if (const auto* sharded = value.sharded_tensor()) {
    made["kind"] = "sharded_tensor";
    made["size"] = to_json(sharded->size());
    made["dtype"] = name(sharded->metadata().properties.type);
    made["shards"] = made["local"] = json::array();
    for (const shard_metadata& m : sharded->metadata().shards) made["shards"].push_back(to_json(m));
    for (const auto& one : sharded->local_shards()) {
      json local = to_json(one.metadata());
      local["sha256"] = sha256(one.tensor().bytes());
      made["local"].push_back(local);
    }
    made["group"] = sharded->group().globals();
  } else if (const auto* placed = value.dtensor()) {
    made["kind"] = "dtensor";
    made["size"] = to_json(placed->size());
    made["dtype"] = name(placed->local().type());
    const layout& l = placed->layout();
    std::vector<std::int32_t> ranks;
    for (std::int64_t p = 0; p < l.mesh().size(); ++p) ranks.push_back(l.mesh().rank_of_position(p));
    made["mesh"] = {{"shape", to_json(l.mesh().sizes())},
                    {"ranks", ranks},
                    {"dim_names", std::vector<std::string>(l.mesh().names().begin(), l.mesh().names().end())}};
    made["placements"] = json::array();
    for (const placement& p : l.placements()) made["placements"].push_back(to_json(p));
    made["local"] = {{"offsets", to_json(l.first_index(placed->rank()))},
                     {"sizes", to_json(placed->local().sizes())},
                     {"sha256", sha256(placed->local().bytes())}};
  }
  return made;
}

json to_json(const state& dict) {
  json entries = json::array();
  const auto paths = dict.spec().leaf_paths();
  for (std::size_t i = 0; i < paths.size(); ++i)
    entries.push_back(to_json(std::string(paths[i][0].name()), dict.leaves()[i]));
  return entries;
}

// Every part holds what its box of the reference says; returns the keys of those that do not.
std::vector<std::string> untrue_keys(const state& dict, std::map<std::string, fsdp_golden::stored> reference) {
  std::vector<std::string> untrue;
  const auto paths = dict.spec().leaf_paths();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::string key(paths[i][0].name());
    if (!reference.contains(key)) {
      untrue.push_back(key + " (not in the reference)");
      continue;
    }
    const tensor_view whole = fsdp_models::view_of(reference.at(key));
    const auto holds = [&](const host_tensor& part, const box& where) {
      if (part.sizes() != where.sizes || part.type() != whole.type) return false;
      return compare(adapter<host_tensor>::view(part), subview(whole, where)).value().equal();
    };
    bool ok = false;
    const auto& value = dict.leaves()[i];
    if (const auto* tensor = value.tensor()) ok = holds(*tensor, box::whole(whole.sizes));
    if (const auto* sharded = value.sharded_tensor()) {
      ok = sharded->size() == whole.sizes && check_cover(distribution_of(*sharded).value()).ok();
      for (const auto& one : sharded->local_shards()) ok &= holds(one.tensor(), one.metadata().where());
    }
    if (const auto* placed = value.dtensor()) {
      ok = placed->size() == whole.sizes;
      for (const placed_box& b : placed->layout().boxes(placed->rank())) ok &= holds(placed->local(), b.where);
    }
    if (!ok) untrue.push_back(key);
  }
  return untrue;
}

// The tensors by key: parameters and buffers from the unwrapped module, flat parameters from PyTorch's shards.
std::map<std::string, fsdp_golden::stored> reference_of(const json& c) {
  std::map<std::string, fsdp_golden::stored> reference;
  const auto values = fsdp_golden::values(c);
  for (const auto& [key, tensor] : values)
    if (key.starts_with("full.")) reference[key.substr(5)] = tensor;
  for (const json& u : c.at("units")) {
    if (!u.at("has_params").get<bool>()) continue;
    const flat_parameter flat = fsdp_models::to_flat_parameter(u);
    fsdp_golden::stored whole{"", {flat.unsharded_numel()}, {}};
    for (std::int32_t r = 0; r < flat.group_size(); ++r) {
      const auto& shard = values.at(u["ranks"][static_cast<std::size_t>(r)]["flat"].get<std::string>());
      whole.type = shard.type;
      whole.bytes.insert(whole.bytes.end(), shard.bytes.begin(), shard.bytes.end());
    }
    whole.bytes.resize(static_cast<std::size_t>(flat.unsharded_numel()) * whole.item_bytes());
    reference[c.value("prefix", "") + clean_key(joined_key(u["module"].get<std::string>(), "_flat_param"))] = whole;
  }
  return reference;
}

// A state dict of the kind that a golden entry describes.
result<state> make_state(const json& c, const json& kind, const rank_memory& memory, any_communicator& comm) {
  const std::string type = kind.at("type");
  const json& config = kind.at("config");
  const auto take = [](result<saved_state<host_tensor>> made) -> result<state> {
    if (!made) return std::move(made).take_error();
    return std::move(made->state);
  };
  if (type == "FULL")
    return take(full_state_dict<host_tensor>(
        memory.model, comm,
        {.rank0_only = config.at("rank0_only"), .offload_to_cpu = config.at("offload_to_cpu"), .memory_bytes = 64}));
  if (type == "LOCAL") return take(local_state_dict<host_tensor>(memory.model, comm.rank()));
  sharded_state_options options{.offload_to_cpu = config.at("offload_to_cpu")};
  // PyTorch makes dtensors whenever it has a mesh.
  if (c.contains("mesh") || config.at("_use_dtensor").get<bool>()) {
    options.form = sharded_form::dtensor;
    const bool is_hybrid = c.contains("mesh") && c["mesh"].size() > 1;
    const extents sizes = c.contains("mesh") ? fsdp_models::to_extents(c["mesh"]) : extents{comm.size()};
    options.mesh = device_mesh::make(sizes, is_hybrid ? std::vector<std::string>{"replicate", "shard"}
                                                      : std::vector<std::string>{"fsdp"})
                       .value();
  }
  return take(sharded_state_dict<host_tensor>(memory.model, comm, options));
}

// What PyTorch's rank has, with references followed; nothing when it failed.
std::optional<json> pytorch_entries(const json& c, const json& dict, std::size_t rank) {
  const json& ranks = dict.contains("same_as_state_dict")
                          ? c["state_dicts"][dict["same_as_state_dict"].get<std::size_t>()]["ranks"]
                          : dict.at("ranks");
  const json& r =
      ranks[rank].contains("same_as_rank") ? ranks[ranks[rank]["same_as_rank"].get<std::size_t>()] : ranks[rank];
  if (!r.contains("entries")) return std::nullopt;
  return r["entries"];
}

json without(json entries, const std::vector<std::string>& fields) {
  for (json& e : entries)
    for (const std::string& field : fields) {
      e.erase(field);
      if (e.contains("local") && e["local"].is_object()) e["local"].erase(field);
    }
  return entries;
}

template <class Predicate>
void remove_entries(json& entries, Predicate is_removed) {
  json kept = json::array();
  for (const json& e : entries)
    if (!is_removed(e)) kept.push_back(e);
  entries = kept;
}

// The answer that ours must equal; nothing: PyTorch gives none.
std::optional<json> expected_entries(const json& c, const json& dict, std::size_t rank, const rank_memory& memory) {
  const std::string type = dict.at("type");
  const json& config = dict.at("config");
  auto entries = pytorch_entries(c, dict, rank);
  // Offloading changes no value: where it makes PyTorch fail, its answer without it counts.
  if (!entries && type == "FULL")
    entries = pytorch_entries(c, c["state_dicts"][config.at("rank0_only").get<bool>() ? 1 : 0], rank);
  if (!entries) return std::nullopt;
  const auto is_whole = [](const fsdp_unit& unit) { return !unit.parameters.is_sharded(); };
  const bool nothing_moves = std::all_of(memory.model.units.begin(), memory.model.units.end(), is_whole);
  // rank0_only means one rank, not one of every replica.
  if (type == "FULL" && config.at("rank0_only").get<bool>() && rank != 0 && !nothing_moves) {
    remove_entries(*entries, [&](const json& e) {
      for (const fsdp_tensor& t : memory.model.tensors)
        if (t.ignored && c.value("prefix", "") + t.fqn == e["key"].get<std::string>()) return false;
      return true;
    });
  }
  // With use_orig_params PyTorch's local state dict also has the flat pieces of parameters, under the parameters'
  // names.
  if (type == "LOCAL" && c.value("orig", false) && !nothing_moves) {
    std::set<std::string> tensors;
    for (const fsdp_tensor& t : memory.model.tensors) tensors.insert(c.value("prefix", "") + t.fqn);
    remove_entries(*entries, [&](const json& e) {
      return e["kind"] == "tensor" && !tensors.contains(e["key"].get<std::string>());
    });
  }
  return without(*entries, {"stride"});
}

}  // namespace

TEST_CASE("state dicts of FSDP units are PyTorch's") {
  int equal = 0, made_where_pytorch_fails = 0;
  for (const json& c : fsdp_golden::cases()) {
    if (!c.contains("values")) continue;
    const auto world = c.at("world").get<std::int32_t>();
    const auto values = fsdp_golden::values(c);
    const auto reference = reference_of(c);
    for (std::size_t d = 0; d < c.at("state_dicts").size(); ++d) {
      const json& dict = c["state_dicts"][d];
      CAPTURE(c.at("name").get<std::string>(), dict.at("type").get<std::string>(), dict.at("config").dump());
      std::vector<json> made(static_cast<std::size_t>(world));
      std::vector<std::vector<std::string>> untrue(static_cast<std::size_t>(world));
      const auto ran = run_ranks(world, [&](any_communicator& comm) -> result<void> {
        const auto r = static_cast<std::size_t>(comm.rank());
        const rank_memory memory(c, values, comm.rank());
        auto state = make_state(c, dict, memory, comm);
        if (!state) return std::move(state).take_error();
        made[r] = to_json(*state);
        untrue[r] = untrue_keys(*state, reference);
        return {};
      });
      INFO((ran ? "" : to_string(ran.cause())));
      REQUIRE(ran);
      for (std::size_t r = 0; r < made.size(); ++r) {
        CAPTURE(r);
        CHECK(untrue[r] == std::vector<std::string>{});
        const rank_memory memory(c, values, static_cast<std::int32_t>(r));
        auto expected = expected_entries(c, dict, r, memory);
        if (!expected) {
          ++made_where_pytorch_fails;
          CHECK(!made[r].empty());
          continue;
        }
        ++equal;
        if (dict.at("type") == "LOCAL" && c.value("orig", false)) {  // PyTorch appends flat parameters to their module
          const auto by_key = [](const json& a, const json& b) { return a["key"] < b["key"]; };
          std::sort(expected->begin(), expected->end(), by_key);
          std::sort(made[r].begin(), made[r].end(), by_key);
        }
        CHECK(made[r] == *expected);
      }
    }
  }
  CHECK(equal > 500);
  CHECK(made_where_pytorch_fails > 50);
}

TEST_CASE("state dicts load back, and keys that do not fit are reported as PyTorch reports them") {
  int loads = 0, partial = 0;
  for (const json& c : fsdp_golden::cases()) {
    if (!c.contains("values")) continue;
    const auto world = c.at("world").get<std::int32_t>();
    const auto values = fsdp_golden::values(c);
    for (const json& load : c.at("loads")) {
      CAPTURE(c.at("name").get<std::string>(), load.at("type").get<std::string>(), load.at("config").dump(),
              load.at("what").get<std::string>());
      const json& expected = load.at("ranks")[0];
      const bool is_partial = load.at("what") == "partial";
      // Where PyTorch could not even save, the last parameter is the one to remove.
      std::string removed = expected.value("removed", "");
      if (removed.empty()) removed = fsdp_models::keys_of(c).back();
      std::vector<load_report> reports(static_cast<std::size_t>(world));
      std::vector<std::string> differing(static_cast<std::size_t>(world));
      const auto ran = run_ranks(world, [&](any_communicator& comm) -> result<void> {
        const auto r = static_cast<std::size_t>(comm.rank());
        const rank_memory original(c, values, comm.rank());
        auto state = make_state(c, load, original, comm);
        if (!state) return std::move(state).take_error();
        rank_memory memory(c, values, comm.rank());
        memory.spoil(comm.rank());
        if (is_partial) {
          if (auto done = state->erase(path{removed}); !done) return done;
          if (auto done = state->set(path{"extra.key"}, host_tensor::make(dtype::float32, {1}).value()); !done)
            return done;
          auto strict = load_state_dict(memory.model, *state, comm, {.mode = load_mode::strict});
          if (strict) return fail(errc::invalid_argument, "a strict load took what does not fit");
          const std::string text = to_string(strict.cause());
          if (text.find(removed) == std::string::npos || text.find("extra.key") == std::string::npos)
            return fail(errc::invalid_argument, "the error does not name the keys").with_values("", text);
        }
        auto report =
            load_state_dict(memory.model, *state, comm, {.mode = is_partial ? load_mode::report : load_mode::strict});
        if (!report) return std::move(report).take_error();
        reports[r] = *report;
        for (const auto& [key, tensor] : memory.values())
          if (tensor.bytes != original.values().at(key).bytes) differing[r] += key + " ";
        return {};
      });
      INFO((ran ? "" : to_string(ran.cause())));
      REQUIRE(ran);
      for (std::size_t r = 0; r < reports.size(); ++r) {
        CAPTURE(r);
        CHECK(reports[r].entries == reports[0].entries);
        const auto missing = reports[r].keys(load_status::missing),
                   unexpected = reports[r].keys(load_status::unexpected);
        if (expected.contains("missing")) {
          CHECK(json(missing) == expected["missing"]);
          CHECK(json(unexpected) == expected["unexpected"]);
        } else if (is_partial) {
          CHECK(missing == std::vector{removed});
          CHECK(unexpected == std::vector<std::string>{"extra.key"});
        } else {
          CHECK(missing.empty());
          CHECK(unexpected.empty());
        }
        if (!is_partial) CHECK(differing[r] == "");
      }
      ++(is_partial ? partial : loads);
    }
  }
  CHECK(loads > 80);
  CHECK(partial > 30);
}
