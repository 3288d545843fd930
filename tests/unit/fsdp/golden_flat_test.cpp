// SPDX-License-Identifier: Apache-2.0
// Compares flat parameters with PyTorch's (golden/seeds/fsdp_flat.json): every field of every unit of every case, and
// the parameters that a module shows. The values of the flat shards must equal the parameters' values in our boxes.
// tests/data/differences/fsdp_flat.json lists the differences.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstring>
#include <differences.hpp>
#include <golden.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp_models.hpp"
import shardmesh.fsdp;

using namespace shardmesh;
using nlohmann::json;

namespace {

using golden::to_json;

json to_json(const shard_parameter_info& i) {
  if (!i.in_shard) return json{false, nullptr, nullptr, nullptr, nullptr};
  return json{true, i.offset_in_shard, i.numel_in_shard, i.intra_begin, i.intra_end};
}

json to_json(const flat_shard_metadata& m) {
  json shapes = json::array(), strides = json::array(), offsets = json::array();
  for (const extents& e : m.shapes) shapes.push_back(to_json(e));
  for (const extents& e : m.strides) strides.push_back(to_json(e));
  for (const auto& [first, last] : m.offsets) offsets.push_back(json{first, last});
  return {{"param_names", m.names},   {"param_shapes", shapes},
          {"param_strides", strides}, {"param_contiguities", m.contiguous},
          {"param_numels", m.numels}, {"param_offsets", offsets}};
}

// Splits "up.weight" as PyTorch does: ["weight", "up"].
json name_and_module(const std::string& fqn) {
  const std::size_t dot = fqn.rfind('.');
  if (dot == std::string::npos) return json{fqn, ""};
  return json{fqn.substr(dot + 1), fqn.substr(0, dot)};
}

// The buffers of a unit: the model's tensors whose innermost unit it is.
json buffers_of(const json& c, const json& unit, const fsdp_model& model) {
  json names = json::array();
  for (const fsdp_tensor& t : model.tensors) {
    if (t.ignored) continue;
    std::string innermost;
    for (const json& u : c.at("units"))
      if (const auto m = u.at("module").get<std::string>(); t.fqn.starts_with(m + ".") && m.size() > innermost.size())
        innermost = m;
    if (innermost != unit.at("module").get<std::string>()) continue;
    names.push_back(innermost.empty() ? t.fqn : t.fqn.substr(innermost.size() + 1));
  }
  std::sort(names.begin(), names.end());
  return names;
}

json answer_of(const json& c, const json& u, const fsdp_model& model) {
  const auto raw_module = u.at("raw_module").get<std::string>();
  json made{{"module", clean_key(raw_module)}, {"has_params", false}, {"buffer_names", buffers_of(c, u, model)}};
  if (!u.at("has_params").get<bool>()) return made;
  const flat_parameter flat = fsdp_models::to_flat_parameter(u);
  made.update({{"has_params", true},
               {"dtype", name(flat.type())},
               {"uses_sharded_strategy", flat.is_sharded()},
               {"group_size", flat.group_size()},
               {"unpadded_unsharded_numel", flat.unsharded_numel()},
               {"padded_unsharded_numel", flat.is_sharded() ? json(flat.padded_numel()) : json()},
               {"sharded_numel", flat.sharded_numel()},
               {"aligned_numel", c.value("orig", false) ? alignment_of(flat.type()) : 0}});
  for (const char* list : {"fqns", "shapes", "strides", "numels", "contiguities", "param_infos", "shared_param_infos",
                           "numels_with_padding", "is_padding_mask", "flat_param_offsets", "ranks"})
    made[list] = json::array();
  made["requires_grad"] = std::any_of(flat.parameters().begin(), flat.parameters().end(),
                                      [](const parameter_info& p) { return p.requires_grad; });
  for (std::size_t i = 0; i < flat.parameters().size(); ++i) {
    const parameter_info& p = flat.parameters()[i];
    made["fqns"].push_back(p.fqn);
    made["shapes"].push_back(to_json(p.shape));
    made["strides"].push_back(to_json(p.strides));
    made["numels"].push_back(flat.numel(i));
    made["contiguities"].push_back(flat.is_contiguous(i));
    made["param_infos"].push_back(name_and_module(p.fqn));
  }
  for (const shared_parameter_info& shared : flat.shared()) {
    json one = name_and_module(shared.fqn);
    for (const json& part : name_and_module(shared.of)) one.push_back(part);
    made["shared_param_infos"].push_back(std::move(one));
  }
  for (const flat_segment& s : flat.segments()) {
    made["numels_with_padding"].push_back(s.numel);
    made["is_padding_mask"].push_back(s.is_padding());
    made["flat_param_offsets"].push_back(json{s.offset, s.offset + s.numel - 1});
  }
  const shard_group group = fsdp_models::group_of(c);
  for (std::int32_t global = 0; global < c.at("world").get<std::int32_t>(); ++global) {
    const std::int32_t rank = flat.is_sharded() ? *group.position(global) : global;
    json infos = json::array();
    const std::int32_t shard = flat.is_sharded() ? rank : 0;
    for (std::size_t i = 0; i < flat.parameters().size(); ++i) infos.push_back(to_json(flat.shard_info(shard, i)));
    made["ranks"].push_back({{"rank_in_group", rank},
                             {"shard_numel_padded", flat.shard_numel_padded(shard)},
                             {"shard_param_infos", infos},
                             {"shard_metadata", to_json(flat.shard_metadata(shard))}});
  }
  return made;
}

// [name, shape] of the parameters that a wrapped module shows, without the wrappers' names.
json parameters_of(const json& c, const fsdp_model& model, std::int32_t rank) {
  json made = json::array();
  for (const fsdp_unit& unit : model.units) {
    const std::string module = clean_key(unit.prefix);
    if (!c.value("orig", false)) {
      made.push_back({joined_key(module, "_flat_param"), to_json(unit.shard.sizes)});
      continue;
    }
    const flat_parameter& flat = unit.parameters;
    for (std::size_t i = 0; i < flat.parameters().size(); ++i)
      made.push_back({clean_key(joined_key(module, flat.parameters()[i].fqn)),
                      {flat.shard_info(*unit.group.position(rank), i).numel_in_shard}});
  }
  for (const fsdp_tensor& t : model.tensors)
    if (t.ignored) made.push_back({t.fqn, to_json(t.value.sizes)});
  std::sort(made.begin(), made.end());
  return made;
}

}  // namespace

TEST_CASE("flat parameters have PyTorch's metadata", "[fsdp_flat]") {
  golden::differences differences("fsdp_flat", "units");
  for (const json& c : fsdp_golden::cases()) {
    const auto title = c.at("name").get<std::string>();
    CAPTURE(title);
    if (!c.contains("values")) {
      // Only a module that FSDP refuses has no answers. It has a scalar, which we treat like any parameter.
      const auto made = flat_parameter::make({{"s", {}, {}, dtype::float32, true}}, {}, {.group_size = 2});
      REQUIRE(made);
      CHECK(made->numel(0) == 1);
      differences.compare(title, {{"construct_exception", c.at("construct_exception")}},
                          {{"construct_exception", nullptr}}, "scalars");
      continue;
    }
    const fsdp_models::rank_memory memory(c, fsdp_golden::values(c), 0);
    for (std::size_t i = 0; i < c.at("units").size(); ++i) {
      json theirs = c["units"][i];
      const json& unit = c["units"][i];
      json ours = answer_of(c, unit, memory.model);
      theirs.erase("raw_module");  // part of the question
      theirs.erase("flat_ok");     // compared below, with the values
      for (std::size_t r = 0; r < theirs.value("ranks", json::array()).size(); ++r) {
        CHECK(theirs["ranks"][r]["flat"] == "flat." + std::to_string(i) + "." + std::to_string(r));
        theirs["ranks"][r].erase("flat");
      }
      differences.compare(title + "/" + std::to_string(i), theirs, ours, "buffers that are not saved");
    }
    for (std::size_t r = 0; r < c.at("parameters").size(); ++r) {
      const fsdp_models::rank_memory own(c, fsdp_golden::values(c), static_cast<std::int32_t>(r));
      json theirs = json::array();
      for (const json& p : c["parameters"][r]) {
        CHECK(p[0].get<std::string>().starts_with("_fsdp_wrapped_module."));
        theirs.push_back({clean_key(p[0].get<std::string>()), p[1]});
      }
      std::sort(theirs.begin(), theirs.end());
      differences.compare(title + "/parameters/" + std::to_string(r), theirs,
                          parameters_of(c, own.model, static_cast<std::int32_t>(r)), "parameters");
    }
    CHECK(c["parameters"].size() == c.at("world").get<std::size_t>());
  }
  differences.finish();
}

TEST_CASE("PyTorch's flat shards hold the parameters at our boxes, and its padding", "[fsdp_flat]") {
  int slots = 0;
  for (const json& c : fsdp_golden::cases()) {
    if (!c.contains("values")) continue;
    auto values = fsdp_golden::values(c);
    for (const json& u : c.at("units")) {
      if (!u.at("has_params").get<bool>()) continue;
      CAPTURE(c.at("name").get<std::string>(), u.at("module").get<std::string>());
      const flat_parameter flat = fsdp_models::to_flat_parameter(u);
      CHECK(u.at("flat_ok") == true);  // PyTorch's own comparison of the values below
      for (const json& r : u.at("ranks")) {
        auto& shard = values.at(r.at("flat").get<std::string>());
        const auto rank = r.at("rank_in_group").get<std::int32_t>();
        const tensor_view view = fsdp_models::view_of(shard);
        // Every slot holds the parameter's elements in its box.
        for (std::size_t i = 0; i < flat.parameters().size(); ++i) {
          auto& full = values.at("full." + fsdp_models::key_of(c, u, flat.parameters()[i].fqn));
          const auto boxes = held_boxes(flat, i, rank);
          const auto held = slots_of(flat, i, rank, view).value();
          REQUIRE(held.size() == boxes.size());
          for (std::size_t s = 0; s < boxes.size(); ++s, ++slots)
            CHECK(compare(held[s], subview(fsdp_models::view_of(full), boxes[s].where)).value().equal());
        }
        // All other elements are padding, as fill_padding writes it.
        fsdp_golden::stored copy = shard;
        REQUIRE(flat.fill_padding(rank, fsdp_models::view_of(copy)));
        CHECK(copy.bytes == shard.bytes);
      }
    }
  }
  CHECK(slots > 0);
}
