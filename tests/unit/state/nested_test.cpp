// SPDX-License-Identifier: Apache-2.0
// Tests the flattening of random nestings over simulated ranks, against a model of elements and against layout's
// `embed`. Also tests failures.
#include <array_tensor.hpp>
#include <foreign_shards.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <dice.hpp>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
import shardmesh.state;
import shardmesh.test.states;

using namespace shardmesh;
using namespace states;
using test::array_tensor;

namespace {

// A box that a group of ranks holds: cut into parts, or held whole (one rank, no parts).
struct region {
  box where;                        // in the whole tensor
  std::vector<std::int32_t> ranks;  // ascending
  bool is_cut = false;
  std::vector<region> parts;
};

// Cuts a box repeatedly along any dimension, also at its ends (empty parts).
std::vector<box> cut(dice& roll, const box& whole, std::int64_t cuts) {
  std::vector<box> parts{whole};
  for (; cuts > 0 && whole.rank() > 0; --cuts) {
    const auto which = static_cast<std::size_t>(roll.up_to(static_cast<std::int64_t>(parts.size()) - 1));
    const auto d = static_cast<std::size_t>(roll.up_to(static_cast<std::int64_t>(whole.rank()) - 1));
    box rest = parts[which];
    const std::int64_t size = roll.up_to(rest.sizes[d]);
    parts[which].sizes[d] = size;
    rest.offsets[d] += size;
    rest.sizes[d] -= size;
    parts.push_back(rest);
  }
  std::shuffle(parts.begin(), parts.end(), roll.engine());
  return parts;
}

region random_region(dice& roll, const box& where, std::vector<std::int32_t> ranks, int depth) {
  region made{where, std::move(ranks), false, {}};
  if (depth == 0 || (made.ranks.size() == 1 && roll.one_in(3))) {
    made.ranks.resize(1);
    return made;
  }
  made.is_cut = true;
  for (const box& part : cut(roll, where, roll.up_to(4))) {
    std::vector<std::int32_t> some;
    for (const std::int32_t rank : made.ranks)
      if (roll.one_in(2)) some.push_back(rank);
    if (some.empty())
      some.push_back(
          made.ranks[static_cast<std::size_t>(roll.up_to(static_cast<std::int64_t>(made.ranks.size()) - 1))]);
    if (depth == 1 || where.rank() == 0) some.resize(1);
    made.parts.push_back(random_region(roll, part, std::move(some), where.rank() == 0 ? 0 : depth - 1));
  }
  return made;
}

bool holds(const region& r, std::int32_t rank) {
  return std::binary_search(r.ranks.begin(), r.ranks.end(), rank);
}

shard_metadata on_rank(const box& b, std::int32_t rank) {
  return {b.offsets, b.sizes, remote_device{.rank = rank, .worker = {}, .where = {}}};
}

// A region as one rank sees it. The rank names itself for the parts that it holds, and any holder for the others.
sharded seen_by(const region& r, std::int32_t rank, const extents& whole, const rank_group& group, dice& roll) {
  sharded_tensor_metadata metadata;
  metadata.size = r.where.sizes;
  metadata.properties.type = dtype::int64;
  std::vector<shard<array_tensor>> local;
  for (const region& part : r.parts) {
    const bool is_mine = holds(part, rank);
    const auto other =
        part.ranks[static_cast<std::size_t>(roll.up_to(static_cast<std::int64_t>(part.ranks.size()) - 1))];
    metadata.shards.push_back(on_rank(relative_to(part.where, r.where), is_mine ? rank : other));
    if (!is_mine) continue;
    if (part.is_cut) {
      auto inner = seen_by(part, rank, whole, rank_group::make(part.ranks).value(), roll);
      local.push_back(shard<array_tensor>::make(std::move(inner), metadata.shards.back()).value());
    } else {
      array_tensor t{part.where.sizes, cells_of(part.where, whole)};
      local.push_back(shard<array_tensor>::make(std::move(t), metadata.shards.back()).value());
    }
  }
  return sharded::make(std::move(local), std::move(metadata), group, group.group_rank(rank).value()).value();
}

void innermost(const region& r, std::vector<shard_metadata>& found) {
  if (!r.is_cut) found.push_back(on_rank(r.where, r.ranks.front()));
  for (const region& part : r.parts) innermost(part, found);
}

// The same by the algebra of distributions: each part's distribution is embedded in its own fragment. Parts without
// elements are left out, because several can have one name.
distribution embedded(region r) {
  std::erase_if(r.parts, [](const region& part) { return part.where.is_empty(); });
  distribution_builder builder(r.where.sizes, owner_space::ranks);
  for (std::size_t i = 0; i < r.parts.size(); ++i)  // with its own slot, so that it can be named
    builder.add(r.parts[i].ranks.front(), static_cast<std::int32_t>(i), relative_to(r.parts[i].where, r.where).offsets,
                r.parts[i].where.sizes);
  distribution made = builder.finish().value();
  for (std::size_t i = 0; i < r.parts.size(); ++i)
    if (r.parts[i].is_cut)
      made = embed(made, r.parts[i].ranks.front(), static_cast<std::int32_t>(i),
                   relative_to(r.parts[i].where, r.where).offsets, embedded(r.parts[i]))
                 .value();
  return made;
}

std::multiset<std::tuple<box, owner_id>> fragments(const distribution& d) {
  std::multiset<std::tuple<box, owner_id>> found;
  d.for_each_owner([&](owner_id o) {
    d.fragments_of(o, [&](const fragment& f) {
      if (!f.where.is_empty()) found.emplace(f.where, f.owner);
      return true;
    });
  });
  return found;
}

bool is_long() {
  const char* text = std::getenv("SHARDMESH_PROPERTY_RUNS");
  return text != nullptr && std::string(text) == "long";
}

shard<array_tensor> local_shard(const shard_metadata& where) {
  return shard<array_tensor>::make(array_tensor::filled(where.sizes), where).value();
}

// [4, 4]: rows [0, 2) on rank 0, cut into columns; rows [2, 4) on rank 1.
sharded two_levels(std::int32_t rank, std::vector<shard_metadata> inner, std::int32_t inner_dim = 4,
                   dtype inner_type = dtype::int64) {
  const shard_metadata top = on_rank({{0, 0}, {2, 4}}, 0), bottom = on_rank({{2, 0}, {2, 4}}, 1);
  const sharded_tensor_metadata metadata{{top, bottom}, {4, 4}, {.type = dtype::int64}};
  if (rank == 1) return sharded::make({local_shard(bottom)}, metadata, rank_group::world(2), 1).value();
  std::vector<shard<array_tensor>> local;
  for (const shard_metadata& s : inner)
    if (s.rank() == 0) {
      array_tensor t = array_tensor::filled(s.sizes);
      t.type = inner_type;
      local.push_back(shard<array_tensor>::make(std::move(t), s).value());
    }
  auto nested =
      sharded::make(std::move(local), {std::move(inner), {2, inner_dim}, {.type = inner_type}}, rank_group::world(2), 0)
          .value();
  return sharded::make({shard<array_tensor>::make(std::move(nested), top).value()}, metadata, rank_group::world(2), 0)
      .value();
}

dict with(sharded st) {
  dict d;
  d.set({"layer", 0, "w"}, std::move(st)).value();
  return d;
}

// The same tensor in the types of another framework.
foreign::cut_tensor foreign_of(const sharded& ours) {
  return foreign::cut_tensor_of(ours, [](const array_tensor& t) { return t.values; });
}

// Checks that flattening gives the same for another framework's types as for ours.
void check_same(const sharded& wanted, const flat_shards& found) {
  CHECK(found.metadata == wanted.metadata());
  CHECK(found.group == wanted.group());
  CHECK(found.rank == wanted.rank());
  REQUIRE(found.local.size() == wanted.local_shards().size());
  std::map<std::size_t, std::vector<std::int64_t>> values;
  for (const flat_shard& one : found.local) {
    const auto* first = reinterpret_cast<const std::int64_t*>(one.tensor.data);
    values[one.index].assign(first, first + numel(one.tensor));
  }
  std::vector<std::vector<std::int64_t>> in_list_order, ours;
  for (const auto& [index, list] : values) in_list_order.push_back(list);
  for (const auto& one : wanted.local_shards()) ours.push_back(one.tensor().values);
  CHECK(in_list_order == ours);
}

error refused(sharded st, const nested_options& options = {}) {
  const foreign::cut_tensor theirs = foreign_of(st);
  auto flat = flatten_nested_shards(with(std::move(st)), options);
  REQUIRE(!flat);
  CHECK(flat.error().key == "layer[0].w");
  const auto same = flatten_nested_shards(theirs, options);
  REQUIRE(!same);
  CHECK(to_string(error(same.error()).with_key(flat.error().key)) == to_string(flat.error()));
  return flat.error();
}

}  // namespace

TEST_CASE("random nestings are flattened to the elements that every rank holds") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  dice roll(seed);
  for (int run = 0, runs = is_long() ? 20000 : 500; run < runs; ++run) {
    INFO("run " << run);
    const auto world = static_cast<std::int32_t>(1 + roll.up_to(5));
    extents shape;
    for (std::int64_t d = roll.up_to(3); d > 0; --d) shape.push_back(roll.one_in(8) ? 0 : 1 + roll.up_to(5));
    std::vector<std::int32_t> all;
    for (std::int32_t r = 0; r < world; ++r) all.push_back(r);
    region root = random_region(roll, box::whole(shape), all, 1 + static_cast<int>(roll.up_to(3)));
    if (!root.is_cut) root = {box::whole(shape), all, true, {root}};
    std::vector<shard_metadata> expected;
    innermost(root, expected);

    std::vector<dict> inputs(all.size());
    for (const std::int32_t rank : all) {
      auto& d = inputs[static_cast<std::size_t>(rank)];
      d.set({"a", 0}, seen_by(root, rank, shape, rank_group::world(world), roll)).value();
      d.set({"b"}, rank).value();
    }
    std::vector<std::vector<shard_metadata>> metadata(all.size());
    const auto ran = run_ranks(world, [&](any_communicator& comm) -> result<void> {
      const auto at = static_cast<std::size_t>(comm.rank());
      auto flat = flatten_nested_shards(inputs[at], comm, rank_group::world(world));
      if (!flat) return std::move(flat).error();
      const sharded& st = *flat->dict.find({"a", 0})->sharded_tensor();
      metadata[at] = st.metadata().shards;
      for (const auto& s : st.local_shards())
        if (s.is_nested() || s.tensor().values != cells_of(s.metadata().where(), shape))
          return fail(errc::invalid_argument, "a shard does not hold what it claims").with_rank(comm.rank());
      if (flat->report.size() != 1 || flat->report[0].unknown_shards != 0)
        return fail(errc::invalid_argument, "the report is wrong");
      return {};
    });
    if (!ran) FAIL(to_string(ran.error()));
    for (const auto& shards : metadata) CHECK(shards == expected);
    const auto flat = distribution_of(sharded_tensor_metadata{expected, shape, {}}, rank_group::world(world)).value();
    CHECK(fragments(flat) == fragments(embedded(root)));

    // One rank alone, with the metadata of other ranks' shards from a look-up by box and rank. Only boxes with elements
    // are looked up, because several empty ones can share a place. If several regions have one box, the innermost
    // counts.
    std::map<std::tuple<box, std::int32_t>, std::vector<shard_metadata>> inside;
    const auto learn = [&](const auto& again, const region& r) -> void {
      for (const region& part : r.parts) {
        if (!part.is_cut) {
          inside.erase({part.where, part.ranks.front()});
          continue;
        }
        std::vector<shard_metadata> inner;
        innermost(part, inner);
        for (const std::int32_t rank : part.ranks) inside.insert_or_assign({part.where, rank}, inner);
        again(again, part);
      }
    };
    learn(learn, root);
    nested_options options;
    path asked{"a", 0};
    options.inner_metadata = [&](const path& where, const shard_metadata& s) -> std::optional<sharded_tensor_metadata> {
      CHECK(where == asked);
      if (s.where().is_empty()) return std::nullopt;
      const auto found = inside.find({s.where(), *s.rank()});
      if (found == inside.end()) return std::nullopt;
      sharded_tensor_metadata inner{found->second, s.sizes, {.type = dtype::int64}};
      for (shard_metadata& one : inner.shards) one.offsets = relative_to(one.where(), s.where()).offsets;
      return inner;
    };
    for (const dict& input : inputs) {
      const auto alone = flatten_nested_shards(input, options);
      if (!alone) FAIL(to_string(alone.error()));
      const sharded& st = *alone->dict.find({"a", 0})->sharded_tensor();
      std::multiset<std::tuple<box, std::int32_t>> found, wanted;
      for (const auto& s : st.metadata().shards)
        if (!s.where().is_empty()) found.emplace(s.where(), *s.rank());
      for (const auto& s : expected)
        if (!s.where().is_empty()) wanted.emplace(s.where(), *s.rank());
      CHECK(found == wanted);
      for (const auto& s : st.local_shards()) CHECK(s.tensor().values == cells_of(s.metadata().where(), shape));
      asked = path();
      const auto theirs = foreign_of(*input.find({"a", 0})->sharded_tensor());
      const auto flat_theirs = flatten_nested_shards(theirs, options);
      asked = path{"a", 0};
      if (!flat_theirs) FAIL(to_string(flat_theirs.error()));
      check_same(st, *flat_theirs);
      CHECK(flat_theirs->outcome == alone->report[0].outcome);
      CHECK(flat_theirs->unknown_shards == alone->report[0].unknown_shards);
    }
  }
}

TEST_CASE("what is not known of other ranks stays one box of its owner, and the report counts it") {
  const auto columns = std::vector{on_rank({{0, 0}, {2, 1}}, 0), on_rank({{0, 1}, {2, 3}}, 1)};
  const auto flat = flatten_nested_shards(with(two_levels(0, columns))).value();
  const sharded& st = *flat.dict.find({"layer", 0, "w"})->sharded_tensor();
  CHECK(st.metadata().shards == std::vector{columns[0], columns[1], on_rank({{2, 0}, {2, 4}}, 1)});
  CHECK(st.group() == rank_group::world(2));
  CHECK(flat.report == std::vector<nested_entry>{{{"layer", 0, "w"}, nested_outcome::flattened, 1}});
  const auto other = flatten_nested_shards(with(two_levels(1, {}))).value();
  CHECK(other.report == std::vector<nested_entry>{{{"layer", 0, "w"}, nested_outcome::kept, 0}});
}

TEST_CASE("nested shards that do not make up the tensor are refused by key, rank and box") {
  error e = refused(two_levels(0, {on_rank({{0, 0}, {2, 3}}, 0)}));
  CHECK(e.code == errc::gap);
  CHECK(to_string(e).find("[0:2, 3:4)") != std::string::npos);
  e = refused(two_levels(0, {on_rank({{0, 0}, {2, 3}}, 0), on_rank({{0, 2}, {2, 2}}, 1)}));
  CHECK(e.code == errc::overlap);
  CHECK(to_string(e).find("[0:2, 2:3)") != std::string::npos);
  e = refused(two_levels(0, {on_rank({{0, 0}, {2, 4}}, 0), on_rank({{0, 3}, {2, 2}}, 1)}));
  CHECK(e.code == errc::out_of_bounds);
  CHECK(e.ranks == std::vector<std::int32_t>{1});
  CHECK(e.boxes == std::vector<box>{{{0, 3}, {2, 2}}});
  e = refused(two_levels(0, {on_rank({{0, 0}, {2, 4}}, 0)}, 4, dtype::uint64));
  CHECK(e.code == errc::dtype_mismatch);
  CHECK(e.expected == "int64");
  CHECK(e.found == "uint64");
  const std::vector whole{on_rank({{0, 0}, {2, 4}}, 0)};
  e = refused(two_levels(0, whole), {.group = rank_group::make({0, 5}).value()});
  CHECK(e.code == errc::invalid_argument);
  CHECK(e.ranks == std::vector<std::int32_t>{1});
  e = refused(two_levels(0, whole), {.inner_metadata = [](const path&, const shard_metadata&) {
                return std::optional(sharded_tensor_metadata{{}, {2, 3}, {}});
              }});
  CHECK(e.code == errc::shape_mismatch);
  CHECK(e.expected == "[2, 4]");
  e = refused(two_levels(0, {on_rank({{0, 0}, {2, 2}}, 0), on_rank({{0, 2}, {2, 2}}, 0)}),
              {.policy = nested_policy::torch_compatible});
  CHECK(e.code == errc::unsupported);
  CHECK(e.hint == "nested_policy::exact takes any number");
}

TEST_CASE("another framework's nested shards are flattened as PyTorch does, as ours are") {
  const nested_options options{.policy = nested_policy::torch_compatible};
  const auto columns = std::vector{on_rank({{0, 0}, {2, 1}}, 0), on_rank({{0, 1}, {2, 3}}, 1)};
  for (const std::int32_t rank : {0, 1}) {
    const sharded nested = two_levels(rank, columns);
    const foreign::cut_tensor theirs = foreign_of(nested);
    const auto wanted = flatten_nested_shards(with(nested), options).value();
    const auto found = flatten_nested_shards(theirs, options).value();
    CHECK(found.outcome == wanted.report[0].outcome);
    const auto* const kept = wanted.dict.find(wanted.report[0].where);
    REQUIRE(kept);
    check_same(*kept->sharded_tensor(), found);
  }
}

TEST_CASE("adapters whose shards are not those of their metadata are refused by rank and box") {
  const foreign::cut_tensor right = foreign_of(two_levels(0, {on_rank({{0, 0}, {2, 4}}, 0)}));
  CHECK(flatten_nested_shards(right));
  auto wrong = right;
  wrong.me = 2;
  CHECK(flatten_nested_shards(wrong).error().expected == "0 to 1");
  wrong.me = -1;
  CHECK(flatten_nested_shards(wrong).error().code == errc::invalid_argument);
  wrong = right;
  wrong.mine.clear();
  error e = flatten_nested_shards(wrong).error();
  CHECK(e.code == errc::invalid_argument);
  CHECK(e.ranks == std::vector<std::int32_t>{0});
  CHECK(e.boxes == std::vector<box>{{{0, 0}, {2, 4}}});
  wrong = right;
  wrong.mine.push_back(right.mine[0]);
  CHECK(flatten_nested_shards(wrong).error().expected == "1 local shards");
  wrong = right;
  wrong.mine[0].place.begin[0] = 1;
  e = flatten_nested_shards(wrong).error();
  CHECK(e.boxes == std::vector<box>{{{1, 0}, {2, 4}}});
  CHECK(e.expected == "[0:2, 0:4) on rank:0/cpu");
  wrong = right;
  wrong.processes = {0, 0};
  CHECK(flatten_nested_shards(wrong).error().code == errc::invalid_argument);
  wrong = right;
  wrong.facts.shape.assign(17, 1);
  CHECK(flatten_nested_shards(wrong).error().code == errc::rank_too_large);
  wrong = right;  // a tensor inside itself
  wrong.mine[0].inside = std::make_shared<foreign::cut_tensor>(wrong);
  wrong.mine[0].inside->mine[0].inside = wrong.mine[0].inside;
  e = flatten_nested_shards(wrong).error();
  CHECK(e.message.find("nested too deeply") != std::string::npos);
  wrong.mine[0].inside->mine.clear();
}

TEST_CASE("an error on one rank is the error of every rank") {
  std::vector<std::string> errors(3);
  const auto ran = run_ranks(3, [&](any_communicator& comm) -> result<void> {
    const auto at = static_cast<std::size_t>(comm.rank());
    dict d;
    if (at == 0) d = with(two_levels(0, {on_rank({{0, 0}, {2, 3}}, 0)}));
    auto flat = flatten_nested_shards(std::move(d), comm, rank_group::world(3));
    errors[at] = flat ? "none" : to_string(flat.error());
    return {};
  });
  CHECK(ran);
  CHECK(errors[0].find("layer[0].w") != std::string::npos);
  CHECK(errors[1] == errors[0]);
  CHECK(errors[2] == errors[0]);
  run_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto flat = flatten_nested_shards(dict(), comm, rank_group::world(3));
    errors[static_cast<std::size_t>(comm.rank())] = flat ? "none" : flat.error().expected;
    return {};
  }).value();
  CHECK(errors[0] == "2 ranks");
  CHECK(errors[1] == "2 ranks");
}

namespace {

// Two ranks, of which the other one repeats this one's message, with one byte changed.
struct echo {
  std::size_t damaged = 0;
  std::byte with{};
  int* calls = nullptr;
  std::int32_t rank() const { return 0; }
  std::int32_t size() const { return 2; }
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options&) {
    std::vector<std::byte> same(bytes.begin(), bytes.end());
    if (++*calls == 1 && damaged < same.size()) same[damaged] = with;
    return std::vector<std::vector<std::byte>>{{bytes.begin(), bytes.end()}, same};
  }
  result<pending> start_exchange(std::span<const outgoing>, std::span<const incoming>, const call_options&) {
    return pending{};
  }
  void abort(const error&) {}
};

}  // namespace

TEST_CASE("a damaged message about nested shards is an error or another layout, never more") {
  const auto columns = std::vector{on_rank({{0, 0}, {2, 1}}, 0), on_rank({{0, 1}, {2, 3}}, 1)};
  int refused = 0;
  for (std::size_t at = 0; at < 160; ++at)
    for (const int value : {0, 1, 2, 3, 64, 127, 128, 255}) {
      int calls = 0;
      any_communicator comm(echo{at, static_cast<std::byte>(value), &calls});
      const auto flat = flatten_nested_shards(with(two_levels(0, columns)), comm, rank_group::world(2));
      refused += flat ? 0 : 1;
    }
  CHECK(refused > 50);
}

TEST_CASE("keys without local shards stay, and their metadata is that of the other ranks") {
  run_ranks(3, [&](any_communicator& comm) -> result<void> {
    // Rank 0 holds the whole tensor, nested and cut between ranks 0 and 1; rank 2 has nothing.
    const shard_metadata outer = on_rank({{0}, {6}}, 0);
    const std::vector inner{on_rank({{0}, {2}}, 0), on_rank({{2}, {4}}, 1)};
    std::vector<shard<array_tensor>> local;
    std::vector<shard_metadata> outers{outer};
    if (comm.rank() < 2) {
      outers[0].placement->rank = comm.rank();
      auto nested = sharded::make({local_shard(inner[static_cast<std::size_t>(comm.rank())])},
                                  {inner, {6}, {.type = dtype::int64}}, rank_group::world(2), comm.rank())
                        .value();
      local.push_back(shard<array_tensor>::make(std::move(nested), outers[0]).value());
    }
    auto st = sharded::make(std::move(local), {outers, {6}, {.type = dtype::int64}}, rank_group::world(3), comm.rank());
    const auto flat = flatten_nested_shards(with(*std::move(st)), comm, rank_group::world(3));
    if (!flat) return flat.error();
    const sharded& made = *flat->dict.find({"layer", 0, "w"})->sharded_tensor();
    if (made.metadata().shards != inner || made.local_shards().size() != (comm.rank() < 2 ? 1U : 0U))
      return fail(errc::disagreement, "wrong");
    return {};
  }).value();
}
