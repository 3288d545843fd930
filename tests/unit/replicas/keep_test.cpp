// SPDX-License-Identifier: Apache-2.0
// Tests `keep` itself: its memory, the copy in the background, replicas that differ, and refusals. What is left after a
// loss is in lost_ranks_test.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "replica_states.hpp"

using namespace shardmesh;
using namespace replica_states;

namespace other_states {

// Parts of one tensor "t" of 8 int32, as a test wants them.
struct rows {
  std::vector<box> boxes;
  std::vector<std::int32_t> values = std::vector<std::int32_t>(8, 7);
  dtype type = dtype::int32;
  extents shape{8};
  std::string key = "t";
  std::optional<error> problem{};
};

inline result<local_state> local_view(rows& mine) {
  if (mine.problem) return *mine.problem;
  local_state part;
  part.tensors.push_back({{mine.key}, mine.shape, mine.type, {}});
  for (const box& where : mine.boxes)
    part.tensors.back().parts.push_back(
        {where, {reinterpret_cast<std::byte*>(mine.values.data()), mine.type, {}, where.sizes, {1}}});
  return part;
}

}  // namespace other_states

namespace {

using other_states::rows;

box range(std::int64_t begin, std::int64_t end) {
  return {{begin}, {end - begin}};
}

// The error of keeping these states, one per rank, which every rank gets alike.
error refusal(std::vector<rows> states, const replicas_options& options = on_nodes(2, 1), std::int64_t step = 1) {
  const auto ranks = static_cast<std::int32_t>(states.size());
  memories all = make_memories(ranks, options);
  std::vector<std::optional<error>> found(states.size());
  on_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    const auto rank = static_cast<std::size_t>(comm.rank());
    const auto kept = all[rank].keep(step, states[rank], comm);
    if (!kept) found[rank] = kept.error();
    return expect(all[rank].kept_bytes() == 0, "something is kept");
  });
  for (const std::optional<error>& one : found) CHECK((one == found.front()));
  REQUIRE(found.front().has_value());
  return *found.front();
}

}  // namespace

TEST_CASE("a step that does not fit in the bound of a rank is refused, and the step before is still kept") {
  const cut mesh{4, 1};
  memories all = make_memories(4, on_nodes(2, 1));
  keep_step(all, mesh, 1);
  std::int64_t most = 0;
  for (const step_replicas& one : all) most = std::max(most, one.kept_bytes());
  for (const bool has_step : {false, true}) {
    INFO(has_step);
    // Room for one step, but not for two; and on rank 2 not even for one.
    replicas_options tight = on_nodes(2, 1);
    tight.memory_bytes = has_step ? most * 3 / 2 : most * 4;
    memories bounded = make_memories(4, tight);
    if (has_step) {
      keep_step(bounded, mesh, 2);
    } else {
      tight.memory_bytes = 100;
      bounded[2] = step_replicas::make(tight).value();
    }
    std::vector<std::string> texts(4);
    on_ranks(4, [&](any_communicator& comm) -> result<void> {
      const auto rank = static_cast<std::size_t>(comm.rank());
      const std::int64_t before = bounded[rank].kept_bytes();
      const auto kept = bounded[rank].keep(3, trained(mesh, comm.rank(), 3), comm);
      if (kept || kept.error().code != errc::no_memory) return expect(false, "another outcome: " + text_of(kept));
      texts[rank] = text_of(kept);
      if (auto same = expect(bounded[rank].kept_bytes() == before, "something was kept"); !same) return same;
      const auto available = bounded[rank].available(comm);
      if (!available) return available.error();
      if (!has_step) return expect(available->empty(), "a step is there");
      model mine(mesh, comm.rank());
      const auto resumed = bounded[rank].resume(mine, comm);
      if (!resumed) return resumed.error();
      return expect(available->size() == 1 && mine == trained(mesh, comm.rank(), 2), "another step");
    });
    CHECK(std::count(texts.begin(), texts.end(), texts.front()) == 4);
    INFO(texts.front());
    CHECK(texts.front().starts_with("the copies of a step do not fit in the memory for replicas (rank"));
    if (!has_step) CHECK(texts.front().find("(rank 2): expected at most 100 bytes, found ") != std::string::npos);
    CHECK(texts.front().ends_with("raise replicas_options::memory_bytes, or lower copies"));
  }
}

TEST_CASE("a rank that is gone before a keep leaves the step before") {
  const cut mesh{4, 1};
  memories all = make_memories(4, on_nodes(2, 1));
  keep_step(all, mesh, 1);
  const auto ran = run_ranks(4, [&](any_communicator& comm) -> result<void> {
    if (comm.rank() == 3) return {};
    const auto kept = all[static_cast<std::size_t>(comm.rank())].keep(2, trained(mesh, comm.rank(), 2), comm);
    return expect(!kept, "a step was kept");
  });
  INFO(text_of(ran));
  CHECK(ran);
  const std::vector<step_replicas*> left = survivors(all, {3});
  on_ranks(3, [&](any_communicator& comm) -> result<void> {
    model mine({3, 1}, comm.rank());
    const auto resumed = left[static_cast<std::size_t>(comm.rank())]->resume(mine, comm);
    if (!resumed) return resumed.error();
    return expect(mine == trained({3, 1}, comm.rank(), 1), "other values");
  });
}

TEST_CASE("a step that is kept in the background has the values at the call") {
  const cut mesh{4, 1};
  memories all = make_memories(4, on_nodes(3, 1));
  on_ranks(4, [&](any_communicator& comm) -> result<void> {
    step_replicas& memory = all[static_cast<std::size_t>(comm.rank())];
    const auto nothing = memory.wait();
    if (!nothing || *nothing) return expect(false, "a report without a keep");
    model mine(mesh, comm.rank());
    for (std::int64_t step = 1; step <= 5; ++step) {
      mine.train(step);
      const auto before = memory.start_keep(step, mine, comm);
      if (!before) return before.error();
      const bool is_right = step == 1 ? !*before : *before && (**before).step == step - 1;
      if (!is_right) return expect(false, "another report");
      mine.train(100 + step);
    }
    const auto last = memory.wait();
    if (!last) return last.error();
    if (!*last || (**last).step != 5 || (**last).kept_bytes != memory.kept_bytes())
      return expect(false, "the last one");
    const auto again = memory.wait();
    if (!again || *again) return expect(false, "a report twice");
    const auto resumed = memory.resume(mine, comm);
    if (!resumed) return resumed.error();
    return expect(resumed->step == 5 && mine == trained(mesh, comm.rank(), 5), "other values");
  });
}

TEST_CASE("an object that may be destroyed while its copy runs in the background waits for it") {
  const cut mesh{2, 1};
  memories all = make_memories(2, on_nodes(2, 1));
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    step_replicas& memory = all[static_cast<std::size_t>(comm.rank())];
    const auto started = memory.start_keep(1, trained(mesh, comm.rank(), 1), comm);
    if (!started) return started.error();
    step_replicas moved = std::move(memory);
    memory = step_replicas::make().value();
    return expect(!moved.copies().empty() && memory.copies().empty(), "other copies");
  });
}

TEST_CASE("a box whose replicas differ is counted, and all ranks resume one value of it") {
  const cut mesh{3, 1};
  memories all = make_memories(3, on_nodes(2, 1));
  std::vector<std::vector<std::int32_t>> found(3);
  on_ranks(3, [&](any_communicator& comm) -> result<void> {
    step_replicas& memory = all[static_cast<std::size_t>(comm.rank())];
    model mine = trained(mesh, comm.rank(), 1);
    mine.whole.front() = comm.rank();
    const auto kept = memory.keep(1, mine, comm);
    if (!kept) return kept.error();
    if (kept->differing_boxes != 1) return expect(false, "another count");
    const auto resumed = memory.resume(mine, comm);
    if (!resumed) return resumed.error();
    found[static_cast<std::size_t>(comm.rank())] = mine.whole;
    return expect(resumed->damaged_copies == 0, "a copy counts as damaged");
  });
  CHECK(found[0] == found[1]);
  CHECK(found[0] == found[2]);
  std::vector<std::int32_t> expected = trained(mesh, 0, 1).whole;
  expected.front() = found[0].front();
  CHECK(found[0] == expected);
  CHECK((found[0].front() >= 0 && found[0].front() < 3));
}

TEST_CASE("an object that differs between ranks is refused, or the lowest rank's value is kept") {
  const cut mesh{2, 1};
  memories all = make_memories(2, on_nodes(2, 1));
  std::string text;
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    step_replicas& memory = all[static_cast<std::size_t>(comm.rank())];
    model mine = trained(mesh, comm.rank(), 1);
    mine.step = 40 + comm.rank();
    const auto refused = memory.keep(1, mine, comm);
    if (comm.rank() == 0) text = text_of(refused);
    const auto kept = memory.keep(1, mine, comm, {.lowest_rank_objects = true});
    if (!kept) return kept.error();
    const auto resumed = memory.resume(mine, comm);
    if (!resumed) return resumed.error();
    return expect(mine.step == 40, "another object");
  });
  CHECK(text ==
        "step: the object differs between ranks (ranks 0, 1); set lowest_rank_objects to keep the value of the "
        "lowest rank");
}

TEST_CASE("without objects, a state with objects lacks them") {
  const cut mesh{2, 1};
  memories all = make_memories(2, on_nodes(2, 1));
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    step_replicas& memory = all[static_cast<std::size_t>(comm.rank())];
    const auto kept = memory.keep(3, trained(mesh, comm.rank(), 3), comm, {.skip_objects = true});
    if (!kept) return kept.error();
    model mine(mesh, comm.rank());
    mine.step = 77;
    const auto strict = memory.resume(mine, comm);
    if (auto same = expect(text_of(strict) == "step: step 3 in memory has no such entry (rank 0); remove it from the "
                                              "state, or set missing to key_check::ignore",
                           "another error: " + text_of(strict));
        !same)
      return same;
    const auto resumed = memory.resume(mine, comm, {.missing = key_check::ignore});
    if (!resumed) return resumed.error();
    model expected = trained(mesh, comm.rank(), 3);
    expected.step = 77;
    return expect(mine == expected && resumed->loaded.missing == std::vector<std::string>{"step"}, "another state");
  });
}

TEST_CASE("what cannot be kept is refused on every rank, and nothing is kept") {
  const rows first{{range(0, 4)}}, second{{range(4, 8)}};
  CHECK(to_string(refusal({first, second}, on_nodes(2, 1), -1)) ==
        "the number of a step is negative (rank 0): expected 0 or more, found -1");
  CHECK(to_string(refusal({first, second}, on_nodes(2, 2))) ==
        "the ranks are in fewer failure domains than there are copies: expected 2 failure domains or more, found 1 of "
        "2 ranks; lower replicas_options::copies, or set failure_domain");
  const error gap = refusal({first, rows{{range(6, 8)}}});
  CHECK(gap.code == errc::gap);
  CHECK(to_string(gap) == "t: no rank has this box in [4:6); give each element to a rank");
  const error overlap = refusal({first, rows{{range(3, 8)}}});
  CHECK(overlap.code == errc::overlap);
  CHECK(
      to_string(overlap) ==
      "t: two ranks have different boxes with common elements in [3:4) (ranks 0, 1); make the boxes equal or disjoint");
  rows other = second;
  other.shape = {9};
  CHECK(refusal({first, other}).code == errc::shape_mismatch);
  other = second;
  other.type = dtype::float32;
  CHECK(to_string(refusal({first, other})) ==
        "t: ranks disagree on the dtype (ranks 0, 1): expected int32, found float32");
  other = second;
  other.boxes = {range(4, 9)};
  CHECK(to_string(refusal({first, other})) ==
        "t: a part extends beyond the tensor in [4:9) (rank 1): expected a box within [8], found [4:9)");
  other.boxes = {range(4, 8), range(4, 8)};
  CHECK(to_string(refusal({first, other})) == "t: the rank has this box twice in [4:8) (rank 1)");
  other = second;
  other.problem = fail(errc::io, "the view failed").with_key("t");
  CHECK(to_string(refusal({first, other})) == "t: the view failed (rank 1)");
}

TEST_CASE("what cannot be loaded is refused on every rank, before anything is written") {
  memories all = make_memories(2, on_nodes(2, 1));
  const std::vector<rows> kept_states{rows{{range(0, 4)}}, rows{{range(4, 8)}}};
  rows other_shape{{range(0, 4)}}, narrow{{range(0, 4)}}, other_key{{range(0, 4)}};
  other_shape.shape = {7};
  narrow.type = dtype::int8;
  other_key.key = "u";
  const std::vector<std::pair<rows, std::string>> cases{
      {other_shape,
       "t: the requested tensor has a different shape than the kept one (rank 0): expected [8], found [7]"},
      {other_key,
       "u: step 1 in memory has no such entry (rank 0); remove it from the state, or set missing to "
       "key_check::ignore"}};
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    const auto rank = static_cast<std::size_t>(comm.rank());
    rows mine = kept_states[rank];
    const auto kept = all[rank].keep(1, mine, comm);
    if (!kept) return kept.error();
    for (const auto& [given, expected] : cases) {
      rows state = given;
      const auto resumed = all[rank].resume(state, comm);
      if (auto same = expect(text_of(resumed) == expected, "another error: " + text_of(resumed)); !same) return same;
    }
    rows narrowed = narrow;
    const auto resumed = all[rank].resume(narrowed, comm);
    if (resumed || resumed.error().code != errc::narrowing) return expect(false, "was narrowed: " + text_of(resumed));
    if (auto cast = all[rank].resume(narrowed, comm, {.allow_narrowing = true}); !cast) return cast.error();
    const auto* const bytes = reinterpret_cast<const std::int8_t*>(narrowed.values.data());
    if (!std::all_of(bytes, bytes + 4, [](std::int8_t value) { return value == 7; }))
      return expect(false, "other values");
    rows nothing{{}};
    nothing.key = "u";
    const auto ignored =
        all[rank].resume(nothing, comm, {.missing = key_check::ignore, .unexpected = key_check::strict});
    return expect(text_of(ignored) ==
                      "t: the kept step has this entry, but no rank requests it; request it, or set "
                      "unexpected to key_check::ignore",
                  "another error: " + text_of(ignored));
  });
}

TEST_CASE("options that make no sense are refused") {
  CHECK(text_of(step_replicas::make({.copies = 0})) == "replicas have no copy: expected copies of 1 or more, found 0");
  CHECK(text_of(step_replicas::make({.memory_bytes = -1})) ==
        "the memory for replicas is negative: expected memory_bytes of 0 or more, found -1");
  // Ranks with other options: every rank gets an error that names both.
  std::vector<std::string> texts(2);
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto memory = step_replicas::make(on_nodes(1 + comm.rank(), 1)).value();
    texts[static_cast<std::size_t>(comm.rank())] = text_of(memory.keep(1, trained({2, 1}, comm.rank(), 1), comm));
    return {};
  });
  CHECK(texts[0] == texts[1]);
  CHECK(texts[0].find("copies 1, skip_objects false") != std::string::npos);
  CHECK(texts[0].find("copies 2, skip_objects false") != std::string::npos);
}
