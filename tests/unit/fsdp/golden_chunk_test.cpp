// SPDX-License-Identifier: Apache-2.0
// Chunks of tensors that tensor parallelism may have cut already, against PyTorch's (golden/seeds/tp_fsdp.json). Test
// tensors hold their own row-major index, so what a rank holds is a list of numbers. Where PyTorch's answer is wrong,
// refused or absent, ours is checked against the numbers of the whole tensor.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstring>
#include <elements.hpp>
#include <golden.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>
import shardmesh.fsdp;
import shardmesh.test.layouts;

using namespace shardmesh;
using nlohmann::json;

namespace {

using elements::numbers;
using golden::to_extents;
using golden::to_json;

numbers sorted(numbers values) {
  std::sort(values.begin(), values.end());
  return values;
}

// What a rank holds of a layout, in local order.
numbers held_numbers(const layout& l, std::int32_t rank) {
  std::vector<std::pair<std::int64_t, std::int64_t>> found;  // local number, element
  const extents local = l.local_shape(rank);
  for (const placed_box& b : l.boxes(rank)) {
    const numbers elements = elements::in(b.where, l.shape());
    const numbers places = elements::in(box{b.local_offsets, b.where.sizes}, local);
    for (std::size_t i = 0; i < elements.size(); ++i) found.emplace_back(places[i], elements[i]);
  }
  std::sort(found.begin(), found.end());
  numbers made;
  for (const auto& one : found) made.push_back(one.second);
  return made;
}

host_tensor tensor_of(const numbers& values, const extents& sizes, dtype type) {
  auto made = host_tensor::make(type, sizes).value();
  numbers copied = values;
  const tensor_view from{
      reinterpret_cast<std::byte*>(copied.data()), dtype::int64, {}, sizes, contiguous_strides(sizes)};
  if (!copy(adapter<host_tensor>::view(made), from)) std::abort();
  return made;
}

numbers values_of(const host_tensor& tensor) {
  numbers values(static_cast<std::size_t>(box::whole(tensor.sizes()).volume()));
  const tensor_view to{reinterpret_cast<std::byte*>(values.data()),
                       dtype::int64,
                       {},
                       tensor.sizes(),
                       contiguous_strides(tensor.sizes())};
  if (!copy(to, adapter<host_tensor>::view(tensor))) std::abort();
  return values;
}

json to_json(const std::vector<shard_metadata>& shards) {
  json made = json::array();
  for (const shard_metadata& m : shards)
    made.push_back(
        {{"offsets", to_json(m.offsets)}, {"sizes", to_json(m.sizes)}, {"placement", to_string(*m.placement)}});
  return made;
}

bool failed(const json& answer) {
  return !answer.is_object() ? answer.is_null() : answer.contains("exception") || answer.contains("outcome");
}

}  // namespace

TEST_CASE("boxes of layouts are exact on every mesh, also where PyTorch's are not") {
  int right = 0, wrong = 0;
  for (const json& c : golden::file("seeds/tp_fsdp.json").at("boxes")) {
    const extents shape = to_extents(c["shape"]);
    std::vector<placement> placements;
    for (const json& p : c["placements"]) placements.push_back(golden::short_placement(p.get<std::string>()));
    // Some meshes leave ranks of the world out: those hold nothing.
    std::vector<std::int32_t> members;
    for (std::size_t r = 0; r < c["ranks"].size(); ++r)
      if (!c["ranks"][r]["coordinate"].is_null()) members.push_back(static_cast<std::int32_t>(r));
    const auto mesh = device_mesh::make(to_extents(c["mesh"]), {}, members).value();
    const layout l = layout::make(mesh, placements, shape).value();
    CAPTURE(to_string(l));
    for (std::size_t r = 0; r < c["ranks"].size(); ++r) {
      const json& rank = c["ranks"][r];
      CAPTURE(r);
      const auto own = static_cast<std::int32_t>(r);
      CHECK(held_numbers(l, own) == elements::held(rank["local"], shape));
      if (!rank["local_box_ok"].get<bool>()) {
        ++wrong;
        continue;
      }
      ++right;
      const json& claimed = rank["get_local_box"];
      CHECK(claimed[1] == to_json(l.local_shape(own)));
      if (!l.boxes(own).empty()) CHECK(claimed[0] == to_json(l.boxes(own)[0].where.offsets));
      if (l.reduction() != reduce_op::none) {
        CHECK(shards_of_layout(l, {}, own, {}, {}).cause().code == errc::mixed_partial);
        continue;
      }
      // The metadata of all: right boxes and owners for every rank, where PyTorch names made-up ones.
      const auto metadata = shards_of_layout(l, {}, own, {}, {}).value();
      numbers covered;
      for (const shard_metadata& m : metadata.shards) {
        const numbers elements = elements::in(m.where(), shape);
        covered.insert(covered.end(), elements.begin(), elements.end());
        const numbers held = sorted(held_numbers(l, *m.rank()));
        for (const std::int64_t e : elements) CHECK(std::binary_search(held.begin(), held.end(), e));
      }
      CHECK(sorted(covered) == elements::in(box::whole(shape), shape));
      if (!failed(rank["shard_md"]) && !l.boxes(own).empty()) {
        const json all = to_json(metadata.shards);
        CHECK(std::find(all.begin(), all.end(), rank["shard_md"]) != all.end());
      }
    }
  }
  CHECK(right > 200);
  CHECK(wrong > 100);
}

TEST_CASE("chunks of a whole tensor are PyTorch's") {
  int equal = 0, scalars = 0;
  for (const json& c : golden::file("seeds/tp_fsdp.json").at("create_chunk_sharded_tensor")) {
    const extents shape = to_extents(c["shape"]);
    const dtype type = parse_dtype(c["dtype"].get<std::string>()).value();
    const auto group = rank_group::make(c["group"].get<std::vector<std::int32_t>>()).value();
    CAPTURE(to_string(shape), to_string(group), c["dtype"].get<std::string>());
    numbers all(static_cast<std::size_t>(box::whole(shape).volume()));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    const host_tensor whole = tensor_of(all, shape, type);
    numbers covered;
    for (std::int32_t r = 0; r < group.size(); ++r) {
      const auto made = create_chunk_sharded_tensor<host_tensor>(whole, r, group).value();
      for (const auto& one : made.local_shards()) {
        CHECK(values_of(one.tensor()) == elements::in(one.metadata().where(), shape));
        const numbers held = values_of(one.tensor());
        covered.insert(covered.end(), held.begin(), held.end());
      }
      const json& rank = c["ranks"][static_cast<std::size_t>(group.global(r))];
      if (!c.contains("result")) continue;  // a scalar, which PyTorch refuses
      CHECK(to_json(made.metadata().shards) == c["result"]["shards"]);
      CHECK(made.metadata().properties == tensor_properties{.type = type});
      const json& local = rank["local"];
      REQUIRE(made.local_shards().size() == local.size());
      for (std::size_t i = 0; i < local.size(); ++i) {
        CHECK(to_json(made.local_shards()[i].metadata().offsets) == local[i]["offsets"]);
        CHECK(values_of(made.local_shards()[i].tensor()) == elements::held(local[i]["holds"], shape));
      }
      ++equal;
    }
    CHECK(sorted(covered) == all);
    scalars += shape.rank() == 0;
  }
  CHECK(equal > 200);
  CHECK(scalars > 0);
}

TEST_CASE("chunks of a tensor that is sharded already hold what their boxes say, on every rank") {
  int equal = 0, ours_alone = 0;
  for (const json& c : golden::file("seeds/tp_fsdp.json").at("chunk_tensor")) {
    const extents shape = to_extents(c["shape"]), mesh_sizes = to_extents(c["mesh"]);
    const std::string kind = c["kind"];
    const device_mesh mesh = device_mesh::make(mesh_sizes).value();
    CAPTURE(to_string(shape), to_string(mesh_sizes), kind);
    numbers covered;
    numbers all(static_cast<std::size_t>(box::whole(shape).volume()));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    for (std::int32_t r = 0; r < mesh.size(); ++r) {
      CAPTURE(r);
      const extents at = *mesh.coordinate_of(r);
      std::vector<std::int32_t> dp_ranks, tp_ranks;
      for (std::int64_t i = 0; i < mesh_sizes[0]; ++i) dp_ranks.push_back(mesh.rank_at({i, at[1]}));
      for (std::int64_t i = 0; i < mesh_sizes[1]; ++i) tp_ranks.push_back(mesh.rank_at({at[0], i}));
      const auto dp = rank_group::make(dp_ranks).value(), tp = rank_group::make(tp_ranks).value();
      const auto dp_rank = static_cast<std::int32_t>(at[0]), tp_rank = static_cast<std::int32_t>(at[1]);
      const host_tensor whole = tensor_of(all, shape, dtype::int64);
      const auto chunked = [&]() -> result<sharded_tensor<host_tensor>> {
        if (kind == "plain") return create_chunk_sharded_tensor<host_tensor>(whole, dp_rank, dp);
        if (kind.starts_with("st")) {
          const auto input =
              create_chunk_sharded_tensor<host_tensor>(whole, tp_rank, tp, {.dim = std::stoi(kind.substr(2))});
          if (!input) return input.cause();
          return chunk_tensor<host_tensor>(*input, dp_rank, dp);
        }
        const placement p = kind == "dtR" ? placement::replicate() : placement::shard(std::stoi(kind.substr(2)));
        // The tp mesh of this row, numbered as the group.
        const layout l = layout::make(device_mesh::make(extents{mesh_sizes[1]}).value(), {p}, shape).value();
        auto input = dtensor<host_tensor>::make(
            l, tp_rank, tensor_of(held_numbers(l, tp_rank), l.local_shape(tp_rank), dtype::int64));
        if (!input) return std::move(input).take_error();
        return chunk_tensor<host_tensor>(*input, dp_rank, dp, tp);
      }();
      REQUIRE(chunked);
      numbers held;
      for (const auto& outer : chunked->local_shards()) {
        const auto take = [&](const shard<host_tensor>& one, const extents& origin) {
          const numbers values = values_of(one.tensor());
          CHECK(values == elements::in(shifted(one.metadata().where(), origin), shape));
          held.insert(held.end(), values.begin(), values.end());
        };
        if (!outer.is_nested()) take(outer, extents::filled(shape.rank(), 0));
        if (outer.is_nested())
          for (const auto& inner : outer.nested().local_shards()) take(inner, outer.metadata().offsets);
      }
      // Replicas over tp hold the same; one of them is enough to cover.
      if ((kind != "plain" && kind != "dtR") || at[1] == 0) covered.insert(covered.end(), held.begin(), held.end());
      const json& rank = c["ranks"][static_cast<std::size_t>(r)];
      if (failed(rank) || failed(rank["result"])) {
        ++ours_alone;
        continue;
      }
      numbers expected;
      for (const json& outer : rank["result"]["local"]) {
        const json& parts = outer.contains("inner") ? outer["inner"]["local"] : json::array({outer});
        for (const json& part : parts) {
          const numbers one = elements::held(part["holds"], shape);
          expected.insert(expected.end(), one.begin(), one.end());
        }
      }
      CHECK(held == expected);
      ++equal;
    }
    CHECK(sorted(covered) == all);
  }
  CHECK(equal > 200);
  CHECK(ours_alone > 20);
}

TEST_CASE("layouts of chunked dtensors are PyTorch's where it cuts on the right mesh dimension") {
  int equal = 0, ours_alone = 0;
  for (const char* section : {"chunk_dtensor", "create_chunk_dtensor"})
    for (const json& c : golden::file("seeds/tp_fsdp.json").at(section)) {
      const extents shape = to_extents(c["shape"]);
      const device_mesh mesh = device_mesh::make(to_extents(c["mesh"])).value();
      const std::string kind = c.value("kind", "plain");
      // (dp, tp), (replicate, shard, tp): FSDP's dimension is the last but one; without tp the last.
      const bool has_tp = c["names"].get<std::string>().ends_with("tp");
      const std::size_t fsdp_dim = mesh.rank() - (has_tp ? 2 : 1);
      CAPTURE(section, c["names"].get<std::string>(), to_string(mesh), to_string(shape), kind);
      std::vector<placement> placements(mesh.rank(), placement::replicate());
      if (kind == "dt0" || kind == "dt1") placements.back() = placement::shard(kind == "dt0" ? 0 : 1);
      auto input = layout::make(mesh, placements, shape);
      if (!input) {
        CHECK(input.cause().code == errc::out_of_bounds);  // Shard(1) of a 1-D tensor
        continue;
      }
      const auto made = chunk_layout(*input, has_tp || mesh.rank() == 1 || c["names"] != "dp" ? fsdp_dim : 0);
      // Without a mesh dimension of its own FSDP has nothing to cut along.
      if (!made) {
        CHECK(made.cause().code == errc::invalid_argument);
        continue;
      }
      CHECK(check_cover(distribute(*made).value()).ok());
      for (std::size_t r = 0; r < c["ranks"].size(); ++r) {
        CAPTURE(r);
        const json& rank = c["ranks"][r];
        if (failed(rank) || failed(rank["result"])) {
          ++ours_alone;
          continue;
        }
        const json& result = rank["result"];
        const std::vector<placement> theirs = golden::to_placements(result["placements"]);
        // Uneven TP: PyTorch's ranks disagree on the shape. Plain tensors on a 3-d mesh: it cuts the replicate axis.
        if (to_extents(result["shape"]) != shape || !rank["result"]["claim_ok"].get<bool>() ||
            theirs != made->placements()) {
          ++ours_alone;
          continue;
        }
        CHECK(held_numbers(*made, static_cast<std::int32_t>(r)) == elements::held(result["holds"], shape));
        if (!failed(rank["all_gather"]) && rank.contains("all_gather"))
          CHECK(held_numbers(gathered_layout(*made, fsdp_dim).value(), static_cast<std::int32_t>(r)) ==
                elements::held(rank["all_gather"], shape));
        ++equal;
      }
    }
  CHECK(equal > 300);
  CHECK(ours_alone > 100);
}
