// SPDX-License-Identifier: Apache-2.0
// Tests sharded tensors that 1 to 8 ranks make from local shards: one exchange of metadata, and the same error
// everywhere.
#include <algorithm>
#include <answers.hpp>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <differences.hpp>
#include <golden.hpp>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fake_tensor.hpp"
#include "random_shards.hpp"
#include "shard_cells.hpp"
import shardmesh.sharding;
import shardmesh.test.shards;

using namespace shardmesh;
using nlohmann::json;

namespace {

using golden::to_json;
using shards::at;

shard<fake_tensor> held(const shard_metadata& metadata, tensor_properties properties = {}) {
  return shard<fake_tensor>::make(fake_tensor::make(metadata.sizes, properties), metadata).value();
}

using maker = function_ref<result<sharded_tensor<fake_tensor>>(any_communicator&)>;

// Each rank's result: its tensor or its error.
std::vector<result<sharded_tensor<fake_tensor>>> on_all(std::int32_t ranks, maker make) {
  std::vector<std::optional<result<sharded_tensor<fake_tensor>>>> found(static_cast<std::size_t>(ranks));
  const auto ran = run_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    found[static_cast<std::size_t>(comm.rank())] = make(comm);
    return {};
  });
  REQUIRE(ran);
  std::vector<result<sharded_tensor<fake_tensor>>> all;
  for (auto& one : found) all.push_back(*std::move(one));
  return all;
}

// The one error that all ranks get.
std::string error_on_all(std::int32_t ranks, maker make) {
  const auto all = on_all(ranks, make);
  for (const auto& one : all) {
    REQUIRE(!one.has_value());
    REQUIRE(to_string(one.error()) == to_string(all[0].error()));
    REQUIRE(one.error() == all[0].error());
  }
  return to_string(all[0].error());
}

}  // namespace

TEST_CASE("random layouts over 1 to 8 ranks become sharded tensors, or one error everywhere") {
  const auto seed = random_shards::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int run = 0; run < random_shards::runs(400); ++run) {
    const auto ranks = static_cast<std::int32_t>(1 + random() % 8);
    auto drawn = random_shards::draw(random, ranks);
    if (random() % 3 == 0) random_shards::damage(random, drawn);
    for (std::int32_t& owner : drawn.owners) owner %= ranks;
    std::vector<std::int32_t> globals;
    for (std::int32_t r = 0; r < ranks; ++r) globals.push_back(r * 3 + 1);
    std::shuffle(globals.begin(), globals.end(), random);
    const auto group = rank_group::make(globals).value();
    const extents size(drawn.size);
    const bool right = shard_cells::look(drawn.size, drawn.shards).ok();
    const auto make = [&](any_communicator& comm) {
      std::vector<shard<fake_tensor>> local;
      for (std::size_t i = 0; i < drawn.shards.size(); ++i)
        if (drawn.owners[i] == comm.rank())
          local.push_back(
              held(at(group.global(comm.rank()), extents(drawn.shards[i].offsets), extents(drawn.shards[i].sizes)),
                   {.type = dtype::float64}));
      return init_from_local_shards(std::move(local), size, comm, group);
    };
    INFO("run " << run);
    if (!right) {
      error_on_all(ranks, make);
      continue;
    }
    const auto all = on_all(ranks, make);
    for (std::int32_t r = 0; r < ranks; ++r) {
      const auto& one = all[static_cast<std::size_t>(r)];
      REQUIRE(one.has_value());
      REQUIRE(one->metadata() == all[0]->metadata());
      REQUIRE(one->rank() == r);
      REQUIRE(one->size() == size);
      REQUIRE(one->local_shards().size() ==
              static_cast<std::size_t>(std::count(drawn.owners.begin(), drawn.owners.end(), r)));
      for (const auto& s : one->local_shards()) REQUIRE(s.metadata().rank() == group.global(r));
    }
    if (!drawn.shards.empty()) REQUIRE(all[0]->metadata().properties.type == dtype::float64);
  }
}

TEST_CASE("row-wise tables without a global size follow one another as in PyTorch", "[sharded_utils]") {
  golden::differences differences("sharded_utils", "recalc_init");
  const json& cases = golden::file("seeds/sharded_utils.json").at("recalc_init");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& c = cases[i];
    INFO(c.dump());
    const auto world = c["world"].get<std::int32_t>();
    REQUIRE(c["ranks"].size() == static_cast<std::size_t>(world));
    const auto all = on_all(world, [&](any_communicator& comm) {
      std::vector<shard<fake_tensor>> local;
      const auto rows = c["rows"][static_cast<std::size_t>(comm.rank())].get<std::int64_t>();
      if (c["missing"] != comm.rank())
        local.push_back(held(at(comm.rank(), {0, 0}, {rows, c["cols"].get<std::int64_t>()})));
      return init_from_local_shards(std::move(local), std::nullopt, comm, rank_group::world(world));
    });
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      REQUIRE(all[rank].has_value());
      const auto& found = all[rank]->metadata();
      json ours{{"size", to_json(found.size)},
                {"shards", answers::shards(found.shards)},
                {"local", json::array()},
                {"spec", answers::spec(infer_sharding_spec_from_shards_metadata(found.shards))}};
      for (const auto& s : all[rank]->local_shards()) ours["local"].push_back(answers::shard(s.metadata()));
      // A rank without shards gets the tensor as well.
      differences.compare(std::to_string(i) + "/ranks/" + std::to_string(rank), c["ranks"][rank], ours,
                          ours["local"].empty() ? "ranks without shards" : "specs");
      if (c["missing"] == rank) CHECK(all[rank]->local_shards().empty());
    }
  }
  differences.finish();
}

TEST_CASE("offsets along any dimension, several shards per rank, are recalculated on every rank") {
  const auto group = rank_group::make({5, 2}).value();
  const auto all = on_all(2, [&](any_communicator& comm) {
    std::vector<shard<fake_tensor>> local;
    local.push_back(held(at(group.global(comm.rank()), {9, 9}, {3, 1 + comm.rank()})));
    local.push_back(held(at(group.global(comm.rank()), {9, 9}, {3, 4})));
    return init_from_local_shards(std::move(local), std::nullopt, comm, group, {.dim = -1});
  });
  CHECK(all[0]->size() == extents{3, 11});
  // Global rank 2 (group rank 1) comes first.
  CHECK(all[1]->local_shards()[0].metadata().where() == box{{0, 0}, {3, 2}});
  CHECK(all[1]->local_shards()[1].metadata().where() == box{{0, 2}, {3, 4}});
  CHECK(all[0]->local_shards()[0].metadata().where() == box{{0, 6}, {3, 1}});
  CHECK(all[0]->local_shards()[1].metadata().where() == box{{0, 7}, {3, 4}});
}

TEST_CASE("a rank's own problem is every rank's error") {
  const auto text = error_on_all(4, [](any_communicator& comm) {
    std::vector<shard<fake_tensor>> local;
    const std::int32_t claimed = comm.rank() >= 2 ? 0 : comm.rank();  // ranks 2 and 3 claim to be rank 0
    local.push_back(held(at(claimed, {comm.rank()}, {1})));
    return init_from_local_shards(std::move(local), extents{4}, comm, rank_group::world(4));
  });
  CHECK(text ==
        "local shard 0: its placement is not on this rank in [2:3) (rank 2): expected rank:2, found rank:0/cpu");
}

TEST_CASE("ranks that pass different sizes, dimensions or groups are told so") {
  const auto with = [](const auto& size, const auto& options, const auto& group) {
    return error_on_all(3, [&](any_communicator& comm) {
      std::vector<shard<fake_tensor>> local;
      const rank_group mine = group(comm.rank());
      local.push_back(held(at(mine.global(comm.rank()), {comm.rank()}, {1})));
      return init_from_local_shards(std::move(local), size(comm.rank()), comm, mine, options(comm.rank()));
    });
  };
  const auto world = [](std::int32_t) { return rank_group::world(3); };
  const auto plain = [](std::int32_t) { return init_options{}; };
  const auto three = [](std::int32_t) { return std::optional(extents{3}); };
  const std::string start = "global_size: ranks disagree on 2 of 4 arguments of init_from_local_shards: ";
  CHECK(with([](std::int32_t r) { return r == 2 ? std::nullopt : std::optional(extents{3}); }, plain, world) ==
        start +
            "'global_size' is [3] on ranks 0, 1, not known on rank 2; 'dim' is not used on ranks 0, 1, 0 on rank 2 "
            "(rank 2): expected [3] on ranks 0, 1, found not known on rank 2");
  CHECK(
      with([](std::int32_t r) { return std::optional(extents{r == 1 ? 4 : 3}); }, plain, world) ==
      "global_size: ranks disagree on 1 of 4 arguments of init_from_local_shards: 'global_size' is [3] on ranks 0, 2, "
      "[4] on rank 1 (rank 1): expected [3] on ranks 0, 2, found [4] on rank 1");
  CHECK(with([](std::int32_t) { return std::optional<extents>(); },
             [](std::int32_t r) { return init_options{.dim = r == 0 ? 0 : -1}; }, world)
            .find("'dim' is -1 on ranks 1, 2, 0 on rank 0") != std::string::npos);
  CHECK(with(three, plain, [](std::int32_t r) {
          return r == 2 ? rank_group::make({0, 1, 9}).value() : rank_group::world(3);
        }).find("'group' is [0, 1, 2] on ranks 0, 1, [0, 1, 9] on rank 2") != std::string::npos);
  CHECK(with(three, plain, [](std::int32_t r) { return rank_group::world(r == 1 ? 4 : 3); }) ==
        "the communicator and the group differ in size (rank 1): expected 4, found 3");
}

TEST_CASE("what does not fit between ranks is named on every rank") {
  const auto overlap = error_on_all(2, [](any_communicator& comm) {
    std::vector<shard<fake_tensor>> local;
    local.push_back(held(at(comm.rank(), {comm.rank()}, {2})));
    return init_from_local_shards(std::move(local), extents{3}, comm, rank_group::world(2));
  });
  CHECK(overlap == "shards 0 at [0:2) and 1 at [1:3) overlap in [1:2) (ranks 0, 1)");
  const auto types = error_on_all(2, [](any_communicator& comm) {
    std::vector<shard<fake_tensor>> local;
    local.push_back(
        held(at(comm.rank(), {comm.rank()}, {1}), {.type = comm.rank() == 0 ? dtype::int8 : dtype::float16}));
    return init_from_local_shards(std::move(local), extents{2}, comm, rank_group::world(2));
  });
  CHECK(
      types.starts_with("ShardedTensor dtype property does not match from different ranks! Found dtype=torch.int8 on "
                        "rank:0, and dtype=torch.float16 on rank:1."));
  const auto nobody = error_on_all(3, [](any_communicator& comm) {
    return init_from_local_shards(std::vector<shard<fake_tensor>>{}, std::nullopt, comm, rank_group::world(3));
  });
  CHECK(nobody.starts_with("no rank has a shard of the tensor"));
}

TEST_CASE("an empty tensor, a scalar and nested shards are ordinary") {
  const auto empty = on_all(3, [](any_communicator& comm) {
    return init_from_local_shards(std::vector<shard<fake_tensor>>{}, extents{0, 4}, comm, rank_group::world(3),
                                  {.properties = {.type = dtype::bfloat16}});
  });
  for (const auto& one : empty) CHECK(one->metadata().properties.type == dtype::bfloat16);
  const auto scalar = on_all(2, [](any_communicator& comm) {
    std::vector<shard<fake_tensor>> local;
    local.push_back(held(at(comm.rank(), {}, {})));
    return init_from_local_shards(std::move(local), extents{}, comm, rank_group::world(2));
  });
  for (const auto& one : scalar) CHECK(one->metadata().shards.size() == 2);
  const auto nested = on_all(2, [](any_communicator& comm) {
    const auto mine = at(comm.rank(), {0, 2 * comm.rank()}, {3, 2});
    sharded_tensor_metadata inner{{at(comm.rank(), {0, 0}, {3, 2})}, {3, 2}, {.type = dtype::int16}};
    std::vector<shard<fake_tensor>> inside;
    inside.push_back(held(inner.shards[0], {.type = dtype::int16}));
    auto inner_tensor = sharded_tensor<fake_tensor>::make(std::move(inside), inner, rank_group::world(2), comm.rank());
    std::vector<shard<fake_tensor>> local;
    local.push_back(shard<fake_tensor>::make(*std::move(inner_tensor), mine).value());
    return init_from_local_shards(std::move(local), extents{3, 4}, comm, rank_group::world(2));
  });
  for (const auto& one : nested) {
    REQUIRE(one.has_value());
    CHECK(one->nesting() == 1);
    CHECK(one->metadata().properties.type == dtype::int16);
  }
}

TEST_CASE("a rank that sends nonsense is named by every other") {
  std::vector<std::string> texts(2);
  const auto ran = run_ranks(3, [&](any_communicator& comm) -> result<void> {
    if (comm.rank() == 1) {
      const std::vector<std::byte> nonsense(7, std::byte{0xFF});
      auto sent = comm.all_gather(nonsense, {});
      return sent ? result<void>() : std::move(sent).error();
    }
    std::vector<shard<fake_tensor>> local;
    local.push_back(held(at(comm.rank(), {comm.rank()}, {1})));
    const auto found = init_from_local_shards(std::move(local), extents{3}, comm, rank_group::world(3));
    texts[comm.rank() == 0 ? 0 : 1] = found ? "" : to_string(found.error());
    return {};
  });
  REQUIRE(ran);
  for (const std::string& text : texts)
    CHECK(text == "a rank is in another call while the others compare arguments of init_from_local_shards (rank 1)");
}

TEST_CASE("messages of any length that are cut or changed anywhere give an answer, not a crash") {
  const auto seed = random_shards::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  // Records what rank 0 really sends; rank 1 sends nothing.
  std::vector<std::byte> sound;
  REQUIRE(run_ranks(2, [&](any_communicator& comm) -> result<void> {
    if (comm.rank() == 1) {
      auto heard = comm.all_gather({}, {});
      if (!heard) return std::move(heard).error();
      sound = (*heard)[0];
      return {};
    }
    std::vector<shard<fake_tensor>> local;
    local.push_back(held({{1, 2}, {3, 4}, parse_remote_device("rank:0/cpu").value()}));
    local.push_back(held({{7, 1'000'000}, {1, 4}, parse_remote_device("rank:0/cpu").value()}));
    static_cast<void>(
        init_from_local_shards(std::move(local), extents{1'000'000, 1'000'000}, comm, rank_group::world(2)));
    return {};
  }));
  REQUIRE(sound.size() > 20);
  for (int run = 0; run < random_shards::runs(600); ++run) {
    auto changed = sound;
    if (random() % 2 == 0) changed.resize(random() % (changed.size() + 1));
    for (std::uint64_t times = random() % 4; times > 0 && !changed.empty(); --times)
      changed[random() % changed.size()] = static_cast<std::byte>(random());
    bool refused = false;
    REQUIRE(run_ranks(2, [&](any_communicator& comm) -> result<void> {
      if (comm.rank() == 1) {
        auto sent = comm.all_gather(changed, {});
        return sent ? result<void>() : std::move(sent).error();
      }
      refused = !init_from_local_shards(std::vector<shard<fake_tensor>>{}, extents{4}, comm, rank_group::world(2));
      return {};
    }));
    REQUIRE(refused);
  }
}
