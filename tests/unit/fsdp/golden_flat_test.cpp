// SPDX-License-Identifier: Apache-2.0
// Flat parameters against PyTorch's own (golden/seeds/fsdp_flat.json): metadata of every unit of every case, and the
// flat shards' values, which must be the parameters' values in the boxes that we say.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstring>
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

}  // namespace

TEST_CASE("flat parameters have PyTorch's metadata") {
  int units = 0;
  for (const json& c : fsdp_golden::cases()) {
    for (const json& u : c.value("units", json::array())) {
      if (!u.at("has_params").get<bool>()) continue;
      CAPTURE(c.at("name").get<std::string>(), u.at("module").get<std::string>());
      ++units;
      const flat_parameter flat = fsdp_models::to_flat_parameter(u);
      json numels = json::array(), mask = json::array(), offsets = json::array();
      for (const flat_segment& s : flat.segments()) {
        numels.push_back(s.numel);
        mask.push_back(s.is_padding());
        offsets.push_back(json{s.offset, s.offset + s.numel - 1});
      }
      CHECK(numels == u.at("numels_with_padding"));
      CHECK(mask == u.at("is_padding_mask"));
      CHECK(offsets == u.at("flat_param_offsets"));
      for (std::size_t i = 0; i < flat.parameters().size(); ++i) {
        CHECK(flat.numel(i) == u.at("numels")[i].get<std::int64_t>());
        CHECK(flat.is_contiguous(i) == u.at("contiguities")[i].get<bool>());
      }
      CHECK(flat.unsharded_numel() == u.at("unpadded_unsharded_numel").get<std::int64_t>());
      CHECK(flat.sharded_numel() == u.at("sharded_numel").get<std::int64_t>());
      if (!u.at("padded_unsharded_numel").is_null())
        CHECK(flat.padded_numel() == u.at("padded_unsharded_numel").get<std::int64_t>());
      if (u.at("aligned_numel").get<std::int64_t>() != 0)
        CHECK(alignment_of(flat.type()) == u.at("aligned_numel").get<std::int64_t>());
      for (const json& r : u.at("ranks")) {
        const auto rank = r.at("rank_in_group").get<std::int32_t>();
        CHECK(flat.shard_numel_padded(rank) == r.at("shard_numel_padded").get<std::int64_t>());
        json infos = json::array();
        for (std::size_t i = 0; i < flat.parameters().size(); ++i) infos.push_back(to_json(flat.shard_info(rank, i)));
        CHECK(infos == r.at("shard_param_infos"));
        CHECK(to_json(flat.shard_metadata(rank)) == r.at("shard_metadata"));
      }
    }
  }
  CHECK(units == 44);
}

TEST_CASE("PyTorch's flat shards hold the parameters at our boxes, and its padding") {
  int slots = 0;
  for (const json& c : fsdp_golden::cases()) {
    if (!c.contains("values")) continue;
    auto values = fsdp_golden::values(c);
    for (const json& u : c.at("units")) {
      if (!u.at("has_params").get<bool>()) continue;
      CAPTURE(c.at("name").get<std::string>(), u.at("module").get<std::string>());
      const flat_parameter flat = fsdp_models::to_flat_parameter(u);
      for (const json& r : u.at("ranks")) {
        auto& shard = values.at(r.at("flat").get<std::string>());
        const auto rank = r.at("rank_in_group").get<std::int32_t>();
        const tensor_view view = fsdp_models::view_of(shard);
        // Every slot holds the box of the parameter.
        for (std::size_t i = 0; i < flat.parameters().size(); ++i) {
          auto& full = values.at("full." + fsdp_models::key_of(c, u, flat.parameters()[i].fqn));
          const auto boxes = held_boxes(flat, i, rank);
          const auto held = slots_of(flat, i, rank, view).value();
          REQUIRE(held.size() == boxes.size());
          for (std::size_t s = 0; s < boxes.size(); ++s, ++slots)
            CHECK(compare(held[s], subview(fsdp_models::view_of(full), boxes[s].where)).value().equal());
        }
        // Everything else is padding, as fill_padding writes it.
        fsdp_golden::stored copy = shard;
        REQUIRE(flat.fill_padding(rank, fsdp_models::view_of(copy)));
        CHECK(copy.bytes == shard.bytes);
      }
    }
  }
  CHECK(slots == 295);
}
