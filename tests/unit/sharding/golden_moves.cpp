// SPDX-License-Identifier: Apache-2.0
// gather, reshard and shard_tensor where PyTorch answered (golden/seeds/sharded_utils.json): every element is checked,
// also where it hangs or fails. Random layouts: moves.cpp.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

TEST_CASE("grids are gathered to any rank, exactly, where PyTorch gathers them and where it fails") {
  const json& cases = golden::file("seeds/sharded_utils.json").at("grids");
  std::mt19937_64 random(7);
  std::size_t gathered = 0, torch_fails = 0;
  for (const json& c : cases) {
    INFO(c["note"] << " " << c["shape"] << " " << c["shards"]);
    const auto world = rank_group::world(c["world"]);
    std::vector<shard_metadata> shards;
    for (const json& s : c["shards"]) shards.push_back(at(s[0], to_extents(s[1]), to_extents(s[2])));
    const extents size = to_extents(c["shape"]);
    if (!check_tensor(shards, size)) continue;  // refused when it is made
    const auto whole = whole_tensor::random(random, size, parse_dtype(c["dtype"].get<std::string>()).value());
    for (std::int32_t destination = 0; destination < world.size(); ++destination) {
      on_all(world.size(), [&](any_communicator& comm) -> result<void> {
        const auto mine = cut(whole, shards, world, comm.rank());
        auto found = gather(mine, destination, comm);
        if (!found) return std::move(found).take_error();
        if (found->has_value() != (comm.rank() == destination)) return failed("a tensor on the wrong rank");
        if (*found && !whole.holds(**found, box::whole(size))) return failed("other values");
        return {};
      });
      ++gathered;
    }
    for (const json& rank : c["gather"])
      for (const auto& [name, answer] : rank.items()) {
        torch_fails += answer.contains("exception") ? 1 : 0;
        if (!answer.contains("exception")) CHECK(answer["equal"].get<bool>());
      }
  }
  CHECK(gathered > 200);
  CHECK(torch_fails > 0);  // scalars
}

TEST_CASE("gathered values are the source's, whatever their dtype") {
  const json& cases = golden::file("seeds/sharded_utils.json").at("gather_loss");
  REQUIRE(cases.size() == 10);
  std::size_t torch_loses = 0;
  for (const json& c : cases) {
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
    torch_loses += c["ranks"][0]["plain"]["equal"].get<bool>() ? 0 : 1;
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
  CHECK(torch_loses > 0);
}

TEST_CASE("sub-groups gather, where PyTorch gathers only to ranks 0, 1, ..") {
  const json& cases = golden::file("seeds/sharded_utils.json").at("gather_group");
  REQUIRE(cases.size() == 4);
  std::mt19937_64 random(8);
  for (const json& c : cases) {
    INFO(c.dump());
    const auto group = rank_group::make(c["group"].get<std::vector<std::int32_t>>()).value();
    const auto shards = golden::to_shards(c["ranks"][c["group"][0].get<std::size_t>()]["shards"]);
    const auto whole = whole_tensor::random(random, {4, 3}, dtype::float32);
    for (std::int32_t destination = 0; destination < group.size(); ++destination)
      on_all(group.size(), [&](any_communicator& comm) -> result<void> {
        auto found = gather(cut(whole, shards, group, comm.rank()), destination, comm);
        if (!found) return std::move(found).take_error();
        const bool right =
            comm.rank() == destination ? *found && whole.holds(**found, box::whole(whole.size)) : !*found;
        return right ? result<void>() : failed("other values");
      });
  }
}

TEST_CASE("chunks are dealt from one rank and resharded as PyTorch does, and where it hangs or fails") {
  const json& cases = golden::file("seeds/sharded_utils.json").at("reshard");
  REQUIRE(cases.size() == 54);
  std::mt19937_64 random(9);
  std::size_t torch_fails = 0;
  for (const json& c : cases) {
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
    on_all(world.size(), [&](any_communicator& comm) -> result<void> {
      const auto source = whole.tensor();
      const auto dealt = shard_tensor(comm.rank() == 0 ? &source : nullptr, before, 0, comm, world);
      if (!dealt) return dealt.cause();
      if (!whole.holds(*dealt)) return failed("other values are dealt");
      const auto moved = reshard(*dealt, after, comm);
      if (!moved) return moved.cause();
      if (!whole.holds(*moved)) return failed("other values after resharding");
      found[static_cast<std::size_t>(comm.rank())] = moved->metadata();
      return {};
    });
    for (const auto& one : found) REQUIRE(one == found[0]);
    CHECK(check_tensor(found[0].shards, size));
    bool torch_works = true;
    for (const json& rank : c["ranks"]) torch_works = torch_works && rank.contains("shards_after");
    torch_fails += torch_works ? 0 : 1;
    if (!torch_works) continue;
    // PyTorch lists shards by rank; its empty ones lie beyond the end.
    std::map<std::int32_t, shard_metadata> by_rank;
    for (const shard_metadata& s : found[0].shards) by_rank.emplace(*s.rank(), s);
    for (const json& s : c["ranks"][0]["shards_after"]) {
      auto expected = golden::to_shard(s);
      expected.placement = remote_device{expected.rank(), "", {}};
      for (std::size_t d = 0; d < size.rank(); ++d) expected.offsets[d] = std::min(expected.offsets[d], size[d]);
      CHECK(by_rank.at(*expected.rank()) == expected);
    }
  }
  CHECK(torch_fails > 10);
}
