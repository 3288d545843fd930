// SPDX-License-Identifier: Apache-2.0
// Compares full, sharded, and local state dicts with PyTorch's (golden/seeds/fsdp_flat.json): every field of every
// rank's answer, bytes included. Threads are the ranks. Where PyTorch fails, every part must still match its box.
// Differences are listed in tests/data/differences/fsdp_flat.json, or follow the rules in `expected_entries`.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <differences.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sha256.hpp>
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

using test::sha256;

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
    made["stride"] = to_json(contiguous_strides(tensor->sizes()));
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
    made["stride"] = to_json(contiguous_strides(placed->size()));
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
                     {"stride", to_json(contiguous_strides(placed->local().sizes()))},
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

// Compares every part with its box of the reference; returns the keys that differ.
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

// Makes a state dict of the kind that a golden entry describes.
result<state> make_state(const json& c, const json& kind, const rank_memory& memory, any_communicator& comm) {
  const std::string type = kind.at("type");
  const json& config = kind.at("config");
  const auto take = [](result<saved_state<host_tensor>> made) -> result<state> {
    if (!made) return std::move(made).error();
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

// The entries of PyTorch's rank, with references resolved; nothing if PyTorch failed.
std::optional<json> pytorch_entries(const json& c, const json& dict, std::size_t rank) {
  const json& ranks = dict.contains("same_as_state_dict")
                          ? c["state_dicts"][dict["same_as_state_dict"].get<std::size_t>()]["ranks"]
                          : dict.at("ranks");
  const json& r =
      ranks[rank].contains("same_as_rank") ? ranks[ranks[rank]["same_as_rank"].get<std::size_t>()] : ranks[rank];
  if (!r.contains("entries")) return std::nullopt;
  return r["entries"];
}

// Removes the matching entries and returns them.
template <class Predicate>
json take_entries(json& entries, Predicate is_taken) {
  json kept = json::array(), taken = json::array();
  for (const json& e : entries) (is_taken(e) ? taken : kept).push_back(e);
  entries = kept;
  return taken;
}

// With use_orig_params: a rank's flat pieces of parameters, as views of its shard.
json pieces_of(const json& c, const rank_memory& memory, std::int32_t rank) {
  json made = json::array();
  for (const fsdp_unit& unit : memory.model.units) {
    const flat_parameter& flat = unit.parameters;
    const auto add = [&](const std::string& fqn, std::size_t parameter) {
      const shard_parameter_info info = flat.shard_info(*unit.group.position(rank), parameter);
      const auto item = static_cast<std::size_t>(item_bytes(flat.type()));
      const std::span<const std::byte> bytes(unit.shard.data + static_cast<std::size_t>(info.offset_in_shard) * item,
                                             static_cast<std::size_t>(info.numel_in_shard) * item);
      made.push_back({{"key", c.value("prefix", "") + clean_key(joined_key(unit.prefix, fqn))},
                      {"kind", "tensor"},
                      {"size", {info.numel_in_shard}},
                      {"stride", {1}},
                      {"dtype", name(flat.type())},
                      {"sha256", sha256(bytes)}});
    };
    for (std::size_t i = 0; i < flat.parameters().size(); ++i) add(flat.parameters()[i].fqn, i);
    for (const shared_parameter_info& s : flat.shared()) add(s.fqn, *flat.find(s.of));
  }
  return made;
}

json sorted_by_key(json entries) {
  std::sort(entries.begin(), entries.end(), [](const json& a, const json& b) { return a["key"] < b["key"]; });
  return entries;
}

// The entries that ours must equal. Entries without a counterpart in ours are left over, with their expected values.
struct expectation {
  json entries;
  json left_over = json::array(), left_over_expected = json::array();
};

expectation expected_entries(const json& c, const json& dict, std::size_t rank, const json& entries,
                             const rank_memory& memory, const json& whole) {
  const std::string type = dict.at("type");
  const json& config = dict.at("config");
  expectation made{entries};
  const auto is_whole = [](const fsdp_unit& unit) { return !unit.parameters.is_sharded(); };
  const bool nothing_moves = std::all_of(memory.model.units.begin(), memory.model.units.end(), is_whole);
  // Our rank0_only means one rank, not one rank of every replica. The other ranks' entries must equal rank 0's.
  if (type == "FULL" && config.at("rank0_only").get<bool>() && rank != 0 && !nothing_moves) {
    std::set<std::string> ignored;
    for (const fsdp_tensor& t : memory.model.tensors)
      if (t.ignored) ignored.insert(c.value("prefix", "") + t.fqn);
    made.left_over = take_entries(made.entries, [&](const json& e) { return !ignored.contains(e["key"]); });
    if (!made.left_over.empty()) made.left_over_expected = whole;
  }
  // With use_orig_params, PyTorch's local state dict also has the flat pieces of parameters, under the parameters'
  // names. It also puts flat parameters last in their module.
  if (type == "LOCAL" && c.value("orig", false) && !nothing_moves) {
    std::set<std::string> tensors;
    for (const fsdp_tensor& t : memory.model.tensors) tensors.insert(c.value("prefix", "") + t.fqn);
    made.left_over = sorted_by_key(take_entries(
        made.entries, [&](const json& e) { return e["kind"] == "tensor" && !tensors.contains(e["key"]); }));
    made.left_over_expected = sorted_by_key(pieces_of(c, memory, static_cast<std::int32_t>(rank)));
  }
  if (type == "LOCAL" && c.value("orig", false)) made.entries = sorted_by_key(made.entries);
  return made;
}

}  // namespace

TEST_CASE("state dicts of FSDP units are PyTorch's", "[fsdp_flat]") {
  golden::differences differences("fsdp_flat", "state_dicts");
  for (const json& c : fsdp_golden::cases()) {
    if (!c.contains("values")) continue;
    const auto world = c.at("world").get<std::int32_t>();
    const auto values = fsdp_golden::values(c);
    const auto reference = reference_of(c);
    json whole;  // rank 0's entries
    for (std::size_t d = 0; d < c.at("state_dicts").size(); ++d) {
      const json& dict = c["state_dicts"][d];
      const auto type = dict.at("type").get<std::string>();
      CAPTURE(c.at("name").get<std::string>(), type, dict.at("config").dump());
      std::vector<json> made(static_cast<std::size_t>(world));
      std::vector<std::vector<std::string>> untrue(static_cast<std::size_t>(world));
      const auto ran = run_ranks(world, [&](any_communicator& comm) -> result<void> {
        const auto r = static_cast<std::size_t>(comm.rank());
        const rank_memory memory(c, values, comm.rank());
        auto state = make_state(c, dict, memory, comm);
        if (!state) return std::move(state).error();
        made[r] = to_json(*state);
        untrue[r] = untrue_keys(*state, reference);
        return {};
      });
      INFO((ran ? "" : to_string(ran.error())));
      REQUIRE(ran);
      if (d == 0) whole = made[0];
      const std::string at = c["name"].get<std::string>() + "/" + std::to_string(d);
      const json& ranks = dict.contains("same_as_state_dict")
                              ? c["state_dicts"][dict["same_as_state_dict"].get<std::size_t>()].at("ranks")
                              : dict.at("ranks");
      REQUIRE(dict.contains("same_as_state_dict") == dict.at("ranks").is_null());
      REQUIRE(ranks.size() == made.size());
      bool all_answered = true, all_parts = true;
      for (std::size_t r = 0; r < made.size(); ++r) {
        CAPTURE(r);
        CHECK(untrue[r] == std::vector<std::string>{});
        CHECK(!(made[r].empty() && type != "FULL"));
        const rank_memory memory(c, values, static_cast<std::int32_t>(r));
        const json& theirs =
            ranks[r].contains("same_as_rank") ? ranks.at(ranks[r]["same_as_rank"].get<std::size_t>()) : ranks[r];
        REQUIRE(!theirs.contains("same_as_rank"));
        all_answered &= theirs.contains("entries");
        json left = theirs, ours = json::object();
        // Offloading changes no value. Where PyTorch fails with it, the answer without it counts.
        auto entries = pytorch_entries(c, dict, r);
        if (!entries && type == "FULL")
          entries = pytorch_entries(c, c["state_dicts"][dict["config"].at("rank0_only").get<bool>() ? 1 : 0], r);
        if (entries) {
          const expectation expected = expected_entries(c, dict, r, *entries, memory, whole);
          all_parts &= expected.left_over.empty() || type != "LOCAL";
          CHECK(expected.left_over == expected.left_over_expected);
          differences.compare(at + "/" + std::to_string(r) + "/entries", expected.entries,
                              type == "LOCAL" && c.value("orig", false) ? sorted_by_key(made[r]) : made[r],
                              "memory order");
          left.erase("entries");
        }
        differences.compare(at + "/" + std::to_string(r), left, ours, "failures");
      }
      // PyTorch's own comparison with the unwrapped module.
      differences.compare(at + "/values_ok", dict.at("values_ok"), all_answered ? json(all_parts) : json(),
                          "values_ok");
    }
  }
  differences.finish();
}

TEST_CASE("state dicts load back, and keys that do not fit are reported as PyTorch reports them", "[fsdp_flat]") {
  golden::differences differences("fsdp_flat", "loads");
  for (const json& c : fsdp_golden::cases()) {
    if (!c.contains("values")) continue;
    const auto world = c.at("world").get<std::int32_t>();
    const auto values = fsdp_golden::values(c);
    for (std::size_t l = 0; l < c.at("loads").size(); ++l) {
      const json& load = c["loads"][l];
      CAPTURE(c.at("name").get<std::string>(), load.at("type").get<std::string>(), load.at("config").dump(),
              load.at("what").get<std::string>());
      REQUIRE(load.at("ranks").size() == static_cast<std::size_t>(world));
      const json& expected = load["ranks"][0];
      const bool is_partial = load.at("what") == "partial";
      // Where PyTorch could not even save, the last parameter is removed.
      std::string removed = expected.value("removed", "");
      if (removed.empty()) removed = fsdp_models::keys_of(c).back();
      std::vector<load_state_report> reports(static_cast<std::size_t>(world));
      std::vector<std::string> differing(static_cast<std::size_t>(world));
      const auto ran = run_ranks(world, [&](any_communicator& comm) -> result<void> {
        const auto r = static_cast<std::size_t>(comm.rank());
        const rank_memory original(c, values, comm.rank());
        auto state = make_state(c, load, original, comm);
        if (!state) return std::move(state).error();
        rank_memory memory(c, values, comm.rank());
        memory.spoil(comm.rank());
        if (is_partial) {
          if (auto done = state->erase(path{removed}); !done) return done;
          if (auto done = state->set(path{"extra.key"}, host_tensor::make(dtype::float32, {1}).value()); !done)
            return done;
          auto strict = load_state_dict(memory.model, *state, comm, {.mode = load_mode::strict});
          if (strict) return fail(errc::invalid_argument, "a strict load took what does not fit");
          const std::string text = to_string(strict.error());
          if (text.find(removed) == std::string::npos || text.find("extra.key") == std::string::npos)
            return fail(errc::invalid_argument, "the error does not name the keys").with_values("", text);
        }
        auto report =
            load_state_dict(memory.model, *state, comm, {.mode = is_partial ? load_mode::report : load_mode::strict});
        if (!report) return std::move(report).error();
        reports[r] = *report;
        for (const auto& [key, tensor] : memory.values())
          if (tensor.bytes != original.values().at(key).bytes) differing[r] += key + " ";
        return {};
      });
      INFO((ran ? "" : to_string(ran.error())));
      REQUIRE(ran);
      for (std::size_t r = 0; r < reports.size(); ++r) {
        CAPTURE(r);
        CHECK(reports[r].entries == reports[0].entries);
        const auto missing = reports[r].keys(load_status::missing),
                   unexpected = reports[r].keys(load_status::unexpected);
        json ours{{"missing", missing}, {"unexpected", unexpected}};
        if (is_partial)
          ours["removed"] = removed;
        else
          ours["equal"] = differing[r].empty();
        INFO(differing[r]);
        if (!is_partial) CHECK(differing[r].empty());
        const json& theirs = load["ranks"][r].contains("same_as_rank")
                                 ? load["ranks"].at(load["ranks"][r]["same_as_rank"].get<std::size_t>())
                                 : load["ranks"][r];
        differences.compare(c["name"].get<std::string>() + "/" + std::to_string(l) + "/" + std::to_string(r), theirs,
                            ours, theirs.contains("save_exception") ? "failures to save" : "failures to load");
      }
    }
  }
  differences.finish();
}
