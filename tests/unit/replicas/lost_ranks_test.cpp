// SPDX-License-Identifier: Apache-2.0
// Tests the return from memory after ranks are lost, exhaustively for small meshes, and the errors after too many are.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <scratch_folder.hpp>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "replica_states.hpp"

using namespace shardmesh;
using namespace replica_states;

namespace refusing_states {

// Rank 1 does not take its objects.
struct refusing : model {
  using model::model;
};

inline result<void> set_objects(refusing& mine, std::span<const local_state_object> objects) {
  if (mine.rank == 1) return fail(errc::gap, "the data loader has no such part");
  return set_objects(static_cast<model&>(mine), objects);
}

}  // namespace refusing_states

namespace {

// The ranks of these nodes.
std::set<std::int32_t> ranks_of(const std::vector<std::int32_t>& nodes, std::int32_t per_node) {
  std::set<std::int32_t> ranks;
  for (const std::int32_t node : nodes)
    for (std::int32_t i = 0; i < per_node; ++i) ranks.insert(node * per_node + i);
  return ranks;
}

// Resumes on a mesh. Ranks beyond those that are left are replacements with empty memory; they come first if
// `new_first`.
void check_resumes(std::vector<step_replicas*> left, cut mesh, std::int64_t step, bool new_first = false) {
  memories fresh = make_memories(mesh.ranks() - static_cast<std::int32_t>(left.size()), {});
  std::vector<step_replicas*> members = std::move(left);
  for (step_replicas& one : fresh) members.insert(new_first ? members.begin() : members.end(), &one);
  on_ranks(mesh.ranks(), [&](any_communicator& comm) -> result<void> {
    model mine(mesh, comm.rank());
    const auto resumed = members[static_cast<std::size_t>(comm.rank())]->resume(mine, comm);
    if (!resumed) return resumed.error();
    if (auto same = expect(resumed->step == step && resumed->is_from_memory && resumed->skipped.empty() &&
                               resumed->damaged_copies == 0 && resumed->loaded.loaded.size() == 5 &&
                               resumed->loaded.bytes_read == 0,
                           "another report");
        !same)
      return same;
    return expect(mine == trained(mesh, comm.rank(), step), "other values");
  });
}

// Loses these ranks, and resumes on fewer ranks, and with replacements on the same mesh and on another.
void check_loss(memories& all, cut mesh, const std::set<std::int32_t>& lost, std::int64_t step) {
  const std::vector<step_replicas*> left = survivors(all, lost);
  check_resumes(left, {static_cast<std::int32_t>(left.size()), 1}, step);
  check_resumes(left, mesh, step, true);
  check_resumes(left, {1, mesh.ranks()}, step);
}

}  // namespace

TEST_CASE("any one node of four may be lost with two copies") {
  for (const std::int32_t per_node : {1, 2}) {
    const cut mesh{4, per_node};
    memories all = make_memories(mesh.ranks(), on_nodes(2, per_node));
    keep_step(all, mesh, 3);
    check_loss(all, mesh, {}, 3);
    for (std::int32_t node = 0; node < 4; ++node) {
      INFO(per_node << " ranks per node, lost node " << node);
      check_loss(all, mesh, ranks_of({node}, per_node), 3);
    }
  }
}

TEST_CASE("any two nodes of eight may be lost with three copies") {
  const cut mesh{4, 2};
  memories all = make_memories(mesh.ranks(), on_nodes(3, 1));
  keep_step(all, mesh, 4);
  for (std::int32_t first = 0; first < 8; ++first)
    for (std::int32_t second = first + 1; second < 8; ++second) {
      INFO("lost nodes " << first << " and " << second);
      check_loss(all, mesh, {first, second}, 4);
    }
}

TEST_CASE("nodes of different sizes may be lost, and a node that holds a replica keeps no second copy of it") {
  const cut mesh{5, 1};
  replicas_options options;
  options.failure_domain = [](std::int32_t rank) { return rank < 3 ? "large" : "node " + std::to_string(rank); };
  memories all = make_memories(mesh.ranks(), options);
  keep_step(all, mesh, 5);
  const std::vector<std::set<std::int32_t>> nodes{{0, 1, 2}, {3}, {4}};
  for (const std::set<std::int32_t>& lost : nodes) check_loss(all, mesh, lost, 5);
  std::size_t copies_of_whole = 0;
  for (const step_replicas& one : all)
    for (const kept_copy& copy : one.copies()) copies_of_whole += copy.key == "whole" ? 1 : 0;
  CHECK(copies_of_whole == 2);
}

TEST_CASE("the last step is the one that is resumed, also when training went back") {
  const cut mesh{3, 1};
  memories all = make_memories(3, on_nodes(2, 1));
  for (const std::int64_t step : {10, 20, 15}) keep_step(all, mesh, step);
  for (const step_replicas& one : all)
    for (const kept_copy& copy : one.copies()) CHECK(copy.step == 15);
  check_loss(all, mesh, {1}, 15);
}

TEST_CASE("a step can be kept again by those that are left and their replacements") {
  const cut mesh{4, 1};
  memories all = make_memories(4, on_nodes(2, 1));
  keep_step(all, mesh, 1);
  for (std::int32_t lost = 0; lost < 4; ++lost) {
    all[static_cast<std::size_t>(lost)] = step_replicas::make(on_nodes(2, 1)).value();
    keep_step(all, mesh, 2 + lost);
    check_loss(all, mesh, {(lost + 1) % 4}, 2 + lost);
  }
}

TEST_CASE("when too many ranks are lost, the error names exactly the boxes that are gone") {
  const cut mesh{4, 1};
  memories all = make_memories(4, on_nodes(2, 1));
  keep_step(all, mesh, 6);
  const std::set<keyed_box> everything = boxes_in(survivors(all, {}));
  REQUIRE(everything.size() == 4 + 4 + 1 + 1);
  int failures = 0;
  for (std::int32_t first = 0; first < 4; ++first)
    for (std::int32_t second = first + 1; second < 4; ++second) {
      INFO("lost ranks " << first << " and " << second);
      const std::vector<step_replicas*> left = survivors(all, {first, second});
      std::set<keyed_box> expected = everything;
      for (const keyed_box& there : boxes_in(left)) expected.erase(there);
      std::vector<std::optional<error>> found(2), listed(2);
      on_ranks(2, [&](any_communicator& comm) -> result<void> {
        const auto rank = static_cast<std::size_t>(comm.rank());
        auto available = left[rank]->available(comm);
        if (!available) return std::move(available).error();
        if (available->size() != 1 || available->front().step != 6) return expect(false, "other steps");
        listed[rank] = available->front().lost;
        model mine({2, 1}, comm.rank());
        const model before = mine;
        const auto resumed = left[rank]->resume(mine, comm);
        if (!resumed) found[rank] = resumed.error();
        return expect(resumed || mine == before, "the state changed");
      });
      CHECK((found[0] == found[1]));
      CHECK((found == listed));
      CHECK(found[0].has_value() == !expected.empty());
      if (!found[0]) continue;
      ++failures;
      CHECK(found[0]->code == errc::gap);
      CHECK(boxes_in(*found[0]) == expected);
    }
  CHECK(failures == 4);  // ranks that are neighbours in the ring
}

TEST_CASE("the message of a lost box names the step, the key, the box, and the remedy") {
  const cut mesh{4, 1};
  memories all = make_memories(4, on_nodes(2, 1));
  keep_step(all, mesh, 6);
  const std::vector<step_replicas*> left = survivors(all, {1, 2});
  std::string text;
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    model mine({2, 1}, comm.rank());
    const auto resumed = left[static_cast<std::size_t>(comm.rank())]->resume(mine, comm);
    if (comm.rank() == 0) text = text_of(resumed);
    return {};
  });
  CHECK(text.starts_with("w: no rank has a copy of this part of step 6 in [4:8, 0:9)"));
  CHECK(text.ends_with("load the step from the store (and 1 other problem)"));
}

TEST_CASE("when too many ranks are lost, resume falls back to the store") {
  const scratch_folder scratch;
  const cut mesh{4, 1}, smaller{2, 1};
  memories all = make_memories(4, on_nodes(2, 1));
  on_ranks(4, [&](any_communicator& comm) -> result<void> {
    auto run = checkpoint_run::open(scratch / "run", comm);
    if (!run) return std::move(run).error();
    run_save_options quick;
    quick.saving.durable = false;
    quick.rank_objects = {{"rng", std::int64_t{comm.rank()}}};
    const auto saved = run->save(5, trained(mesh, comm.rank(), 5), comm, quick);
    return saved ? result<void>() : saved.error();
  });
  keep_step(all, mesh, 7);
  for (const bool is_lost : {false, true}) {
    const std::vector<step_replicas*> left = survivors(all, is_lost ? std::set<std::int32_t>{1, 2} : std::set{1, 3});
    on_ranks(2, [&](any_communicator& comm) -> result<void> {
      auto run = checkpoint_run::open(scratch / "run", comm, {.when_resized = resized_objects::drop});
      if (!run) return std::move(run).error();
      model mine(smaller, comm.rank());
      const auto resumed = left[static_cast<std::size_t>(comm.rank())]->resume(mine, comm, *run);
      if (!resumed) return resumed.error();
      const std::int64_t step = is_lost ? 5 : 7;
      if (auto same = expect(resumed->step == step && resumed->is_from_memory == !is_lost, "another step"); !same)
        return same;
      if (auto same = expect(resumed->skipped.size() == (is_lost ? 2U : 0U), "other problems"); !same) return same;
      const std::vector<std::string> dropped{"rank_objects.rng.0", "rank_objects.rng.1", "rank_objects.rng.2",
                                             "rank_objects.rng.3"};
      if (auto same = expect(resumed->dropped == (is_lost ? dropped : std::vector<std::string>()), "other objects");
          !same)
        return same;
      return expect(mine == trained(smaller, comm.rank(), step), "other values");
    });
  }
  // As many ranks as have saved it get their objects.
  memories empty = make_memories(4, on_nodes(2, 1));
  on_ranks(4, [&](any_communicator& comm) -> result<void> {
    auto run = checkpoint_run::open(scratch / "run", comm);
    if (!run) return std::move(run).error();
    model mine(mesh, comm.rank());
    const auto resumed = empty[static_cast<std::size_t>(comm.rank())].resume(mine, comm, *run);
    if (!resumed) return resumed.error();
    const objects_of_rank expected{{"rng", std::int64_t{comm.rank()}}};
    return expect(resumed->step == 5 && resumed->rank_objects == expected, "other objects");
  });
}

TEST_CASE("a rank that does not take its objects gets its error, and does not load from the store alone") {
  const scratch_folder scratch;
  memories all = make_memories(2, on_nodes(2, 1));
  keep_step(all, {2, 1}, 3);
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto run = checkpoint_run::open(scratch / "run", comm);
    if (!run) return std::move(run).error();
    refusing_states::refusing mine({2, 1}, comm.rank());
    const auto resumed = all[static_cast<std::size_t>(comm.rank())].resume(mine, comm, *run);
    if (comm.rank() == 0) return expect(resumed && resumed->is_from_memory, "another outcome: " + text_of(resumed));
    return expect(!resumed && resumed.error().code == errc::invalid_argument &&
                      resumed.error().message == "the data loader has no such part",
                  "another outcome: " + text_of(resumed));
  });
}

TEST_CASE("without a step in memory, resume says so, and falls back to a run without steps") {
  const scratch_folder scratch;
  memories all = make_memories(2, {});
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    step_replicas& memory = all[static_cast<std::size_t>(comm.rank())];
    model mine({2, 1}, comm.rank());
    const model before = mine;
    const auto available = memory.available(comm);
    if (!available || !available->empty()) return expect(false, "a step is available");
    const auto resumed = memory.resume(mine, comm);
    if (auto same = expect(text_of(resumed) == "no rank holds a step in memory; load a step from the store",
                           "another error: " + text_of(resumed));
        !same)
      return same;
    auto run = checkpoint_run::open(scratch / "run", comm);
    if (!run) return std::move(run).error();
    const auto stored = memory.resume(mine, comm, *run);
    if (!stored) return stored.error();
    return expect(!stored->step && !stored->is_from_memory && mine == before, "a step was resumed");
  });
}

TEST_CASE("a damaged copy is not used: another one takes its place, and without one its box is named") {
  const cut mesh{4, 1};
  memories all = make_memories(4, on_nodes(2, 1));
  keep_step(all, mesh, 8);
  const box where{{4, 0}, {4, 9}};  // of rank 1
  std::vector<step_replicas*> holders;
  for (step_replicas& one : all)
    if (boxes_in({&one}).contains({"w", where})) holders.push_back(&one);
  REQUIRE(holders.size() == 2);
  for (std::int64_t damaged = 1; damaged <= 2; ++damaged) {
    flip_byte(*holders[static_cast<std::size_t>(damaged - 1)], "w", where);
    const auto ran = run_ranks(4, [&](any_communicator& comm) -> result<void> {
      model mine(mesh, comm.rank());
      const auto resumed = all[static_cast<std::size_t>(comm.rank())].resume(mine, comm);
      if (!resumed) return resumed.error();
      return expect(resumed->damaged_copies == damaged && mine == trained(mesh, comm.rank(), 8), "other values");
    });
    INFO(text_of(ran));
    if (damaged == 1) {
      CHECK(ran);
    } else {
      REQUIRE(!ran);
      CHECK(ran.error().code == errc::gap);
      CHECK(boxes_in(ran.error()) == std::set<keyed_box>{{"w", where}});
    }
  }
}
