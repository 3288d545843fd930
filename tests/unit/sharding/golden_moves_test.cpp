// SPDX-License-Identifier: Apache-2.0
// Tests gather, reshard, and shard_tensor where PyTorch answered (golden/seeds/sharded_utils.json). Every element is
// checked, even where PyTorch hangs or fails. Random layouts are in moves_test.cpp.
#include <algorithm>
#include <answers.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <differences.hpp>
#include <golden.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>
import shardmesh.sharding;
import shardmesh.test.moves;
import shardmesh.test.shards;

using namespace shardmesh;
using nlohmann::json;

namespace {

using golden::to_extents;
using moves::cut;
using moves::failed;
using moves::on_all;
using moves::whole_tensor;
using shards::at;

}  // namespace

TEST_CASE("grids are gathered to any rank, exactly, where PyTorch gathers them and where it fails", "[sharded_utils]") {
  golden::differences differences("sharded_utils", "grids_gather");
  const json& cases = golden::file("seeds/sharded_utils.json").at("grids");
  std::mt19937_64 random(7);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& c = cases[i];
    INFO(c["note"] << " " << c["shape"] << " " << c["shards"]);
    const auto world = rank_group::world(c["world"]);
    std::vector<shard_metadata> shards;
    for (const json& s : c["shards"]) shards.push_back(at(s[0], to_extents(s[1]), to_extents(s[2])));
    const extents size = to_extents(c["shape"]);
    // Only the destination of a gather reports a result. The last rank gathers with a dtype.
    json ours(static_cast<std::size_t>(world.size()), json::object());
    REQUIRE(c["gather"].size() == ours.size());
    if (const auto made = check_tensor(shards, size); !made) {  // refused at construction: no rank gathers
      differences.compare(std::to_string(i), c["gather"], ours, "refused");
      continue;
    }
    const auto whole = whole_tensor::random(random, size, parse_dtype(c["dtype"].get<std::string>()).value());
    for (std::int32_t destination = 0; destination < world.size(); ++destination) {
      on_all(world.size(), [&](any_communicator& comm) -> result<void> {
        const auto mine = cut(whole, shards, world, comm.rank());
        auto found = gather(mine, destination, comm);
        if (!found) return std::move(found).error();
        if (found->has_value() != (comm.rank() == destination)) return failed("a tensor on the wrong rank");
        if (*found && !whole.holds(**found, box::whole(size))) return failed("other values");
        return {};
      });
    }
    ours.front()["gather_dst0"] = {{"equal", true}};
    ours.back()["gather_dst" + std::to_string(world.size() - 1) + "_dtype"] = {{"equal", true}};
    differences.compare(std::to_string(i), c["gather"], ours, size.rank() == 0 ? "scalars" : "not tried");
  }
  differences.finish();
}

TEST_CASE("gathered values are the source's, whatever their dtype", "[sharded_utils]") {
  golden::differences differences("sharded_utils", "gather_loss");
  const json& cases = golden::file("seeds/sharded_utils.json").at("gather_loss");
  for (std::size_t k = 0; k < cases.size(); ++k) {
    const json& c = cases[k];
    INFO(c.dump());
    const auto world = rank_group::world(c["world"]);
    const dtype type = parse_dtype(c["dtype"].get<std::string>()).value();
    const json& source = c["ranks"][0]["source"];
    const auto count = static_cast<std::int64_t>(source.size());
    whole_tensor whole{
        {count}, type, std::vector<std::byte>(source.size() * static_cast<std::size_t>(item_bytes(type)))};
    for (std::size_t i = 0; i < source.size(); ++i) {
      std::byte* to = whole.bytes.data() + i * whole.item();
      const auto put = [&](auto value) {
        REQUIRE(sizeof value == whole.item());
        std::memcpy(to, &value, sizeof value);
      };
      if (type == dtype::int64) put(source[i].get<std::int64_t>());
      if (type == dtype::int32) put(source[i].get<std::int32_t>());
      if (type == dtype::float64) put(source[i].get<double>());
      if (type == dtype::float32) put(source[i].get<float>());
      if (type == dtype::boolean) put(source[i].get<bool>());
    }
    REQUIRE(c["ranks"].size() == static_cast<std::size_t>(world.size()));
    // The source counts up from the base, and the gathered tensor equals it.
    json counted = json::array();
    for (std::size_t i = 0; i < source.size(); ++i) {
      const json number = c["base"].get<std::int64_t>() + static_cast<std::int64_t>(i);
      counted.push_back(type == dtype::boolean ? json(number != 0) : number);
    }
    for (std::int32_t r = 0; r < world.size(); ++r) {
      json ours;
      for (const char* way : {"plain", "dtype", "enforce_dtype"})
        ours[way] = r == 0 ? json{{"values", counted}, {"equal", true}} : json();
      ours["source"] = r == 0 ? counted : json();
      differences.compare(std::to_string(k) + "/ranks/" + std::to_string(r), c["ranks"][static_cast<std::size_t>(r)],
                          ours, "values beyond float32");
    }
    chunk_sharding_spec spec;
    for (std::int32_t r = 0; r < world.size(); ++r) spec.placements.push_back({r, "", {}});
    on_all(world.size(), [&](any_communicator& comm) -> result<void> {
      const auto mine = cut(whole, build_metadata(spec, whole.size).value().shards, world, comm.rank());
      host_tensor to = comm.rank() == 0 ? host_tensor::make(type, whole.size).value() : host_tensor();
      const auto view = comm.rank() == 0 ? std::optional(adapter<host_tensor>::view(to)) : std::nullopt;
      if (auto ran = gather(mine, 0, view, comm); !ran) return ran;
      return comm.rank() != 0 || whole.holds(to, box::whole(whole.size)) ? result<void>() : failed("other values");
    });
  }
  differences.finish();
}

TEST_CASE("sub-groups gather, where PyTorch gathers only to ranks 0, 1, ..", "[sharded_utils]") {
  golden::differences differences("sharded_utils", "gather_group");
  const json& cases = golden::file("seeds/sharded_utils.json").at("gather_group");
  std::mt19937_64 random(8);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& c = cases[i];
    INFO(c.dump());
    const auto group = rank_group::make(c["group"].get<std::vector<std::int32_t>>()).value();
    const auto whole = whole_tensor::random(random, {4, 3}, dtype::float32);
    chunk_sharding_spec spec;
    for (const std::int32_t r : group.globals()) spec.placements.push_back({r, "", {}});
    const auto shards = build_metadata(spec, whole.size).value().shards;
    REQUIRE(c["ranks"].size() == c["world"].get<std::size_t>());
    for (std::int32_t r = 0; r < c["world"].get<std::int32_t>(); ++r) {
      json ours;
      if (const auto position = group.group_rank(r))
        ours = {{"shards", answers::shards(shards)}, {"gather_dst0", *position == 0 ? json{{"equal", true}} : json()}};
      differences.compare(std::to_string(i) + "/ranks/" + std::to_string(r), c["ranks"][static_cast<std::size_t>(r)],
                          ours, "sub-groups");
    }
    for (std::int32_t destination = 0; destination < group.size(); ++destination)
      on_all(group.size(), [&](any_communicator& comm) -> result<void> {
        auto found = gather(cut(whole, shards, group, comm.rank()), destination, comm);
        if (!found) return std::move(found).error();
        const bool right =
            comm.rank() == destination ? *found && whole.holds(**found, box::whole(whole.size)) : !*found;
        return right ? result<void>() : failed("other values");
      });
  }
  differences.finish();
}

TEST_CASE("chunks are dealt from one rank and resharded as PyTorch does, and where it hangs or fails",
          "[sharded_utils]") {
  golden::differences differences("sharded_utils", "reshard");
  const json& cases = golden::file("seeds/sharded_utils.json").at("reshard");
  std::mt19937_64 random(9);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& c = cases[i];
    INFO(c["shape"] << " " << c["src"] << " " << c["dst"]);
    const auto world = rank_group::world(c["world"]);
    const extents size = to_extents(c["shape"]);
    const auto to_spec = [](const json& s) {
      chunk_sharding_spec made{s[0].get<std::int32_t>(), {}};
      for (const json& r : s[1]) made.placements.push_back({r.get<std::int32_t>(), "", {}});
      return made;
    };
    const sharding_spec before = to_spec(c["src"]), after = to_spec(c["dst"]);
    const auto whole = whole_tensor::random(random, size, dtype::int64);
    std::vector<sharded_tensor_metadata> found(static_cast<std::size_t>(world.size()));
    std::vector<json> ours(found.size());
    // The shards that a rank holds. Their content is checked with all values.
    const auto local_of = [&](const sharded_tensor<host_tensor>& st) {
      json made = json::array();
      for (const auto& s : st.local_shards()) {
        json one = answers::shard(s.metadata());
        one["holds"] = {{"shape", golden::to_json(s.tensor().sizes())}};
        if (!s.metadata().where().is_empty()) one["holds"]["box"] = answers::box(s.metadata().where());
        made.push_back(std::move(one));
      }
      return made;
    };
    on_all(world.size(), [&](any_communicator& comm) -> result<void> {
      const auto source = whole.tensor();
      const auto dealt = shard_tensor(comm.rank() == 0 ? &source : nullptr, before, 0, comm, world);
      if (!dealt) return dealt.error();
      if (!whole.holds(*dealt)) return failed("other values are dealt");
      const auto moved = reshard(*dealt, after, comm);
      if (!moved) return moved.error();
      if (!whole.holds(*moved)) return failed("other values after resharding");
      const auto r = static_cast<std::size_t>(comm.rank());
      found[r] = moved->metadata();
      ours[r] = {{"before", local_of(*dealt)},
                 {"shards_before", answers::shards(dealt->metadata().shards)},
                 {"after", local_of(*moved)},
                 {"shards_after", answers::shards(moved->metadata().shards)},
                 {"exact", true}};
      return {};
    });
    for (const auto& one : found) REQUIRE(one == found[0]);
    CHECK(check_tensor(found[0].shards, size));
    REQUIRE(c["ranks"].size() == ours.size());
    bool torch_works = true;
    for (std::size_t r = 0; r < ours.size(); ++r) {
      // PyTorch lists shards by rank after resharding.
      std::sort(ours[r]["shards_after"].begin(), ours[r]["shards_after"].end(),
                [](const json& a, const json& b) { return a["placement"] < b["placement"]; });
      torch_works &= c["ranks"][r].contains("exact");
      const bool works = c["ranks"][r].contains("shards_after");
      if (!works)  // our answer is checked above
        for (const char* field : {"before", "shards_before", "after", "shards_after", "exact"})
          if (!c["ranks"][r].contains(field)) ours[r].erase(field);
      differences.compare(std::to_string(i) + "/ranks/" + std::to_string(r), c["ranks"][r], ours[r],
                          works ? "empty shards" : "failures");
    }
    differences.compare(std::to_string(i) + "/exact", c.value("exact", golden::absent),
                        torch_works ? json(true) : golden::absent, "failures");
  }
  differences.finish();
}
