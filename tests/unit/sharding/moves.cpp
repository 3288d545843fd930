// SPDX-License-Identifier: Apache-2.0
// gather, reshard and shard_tensor over 1 to 8 ranks: every element is checked, against PyTorch's answers
// (golden/seeds/sharded_utils.json) and on random layouts; and every rank has the same error.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fake_tensor.hpp"
#include "random_shards.hpp"
#include "shard_cells.hpp"
import shardmesh.sharding;

// A framework's tensor that has no memory left for large ones.
struct small_tensor {
  fake_tensor held;
};
template <>
struct shardmesh::adapter<small_tensor> {
  static tensor_view view(const small_tensor& t) { return adapter<fake_tensor>::view(t.held); }
  static small_tensor allocate(dtype type, const extents& sizes, device) {
    if (!sizes.empty() && sizes[0] > 4) throw std::runtime_error("more than 4 rows");
    return {fake_tensor::make(sizes, {.type = type}, 8)};
  }
};

using namespace shardmesh;
using nlohmann::json;

namespace {

json golden(const char* section) {
  std::ifstream file(SHARDMESH_TEST_DATA "/golden/seeds/sharded_utils.json");
  return json::parse(file)[section];
}

extents to_extents(const json& values) {
  return flatten_tensor_size(values.get<std::vector<std::int64_t>>()).value();
}

shard_cells::numbers to_numbers(const extents& e) {
  return {e.begin(), e.end()};
}

shard_metadata at(std::int32_t rank, const extents& offsets, const extents& sizes) {
  return {offsets, sizes, remote_device{rank, "", {}}};
}

// A whole tensor in plain bytes: what every part is compared with.
struct model {
  extents size;
  dtype type;
  std::vector<std::byte> bytes;

  std::size_t item() const { return static_cast<std::size_t>(item_bytes(type)); }

  static model random(std::mt19937_64& source, const extents& size, dtype type) {
    model made{size, type, {}};
    made.bytes.resize(static_cast<std::size_t>(box::whole(size).volume()) * made.item());
    for (std::byte& b : made.bytes) b = static_cast<std::byte>(source());
    return made;
  }

  // The bytes of a box, row-major.
  std::vector<std::byte> part(const box& b) const {
    std::vector<std::byte> made;
    if (b.is_empty()) return made;
    shard_cells::for_each_cell(to_numbers(size), {to_numbers(b.offsets), to_numbers(b.sizes)}, [&](std::int64_t cell) {
      const auto first = bytes.begin() + cell * static_cast<std::int64_t>(item());
      made.insert(made.end(), first, first + static_cast<std::ptrdiff_t>(item()));
    });
    return made;
  }

  host_tensor tensor(const box& b) const {
    host_tensor made = host_tensor::make(type, b.sizes).value();
    const auto values = part(b);
    std::copy(values.begin(), values.end(), made.bytes().begin());
    return made;
  }
  host_tensor tensor() const { return tensor(box::whole(size)); }

  bool holds(const host_tensor& found, const box& b) const {
    const auto values = part(b);
    return found.type() == type && found.sizes() == b.sizes &&
           std::equal(values.begin(), values.end(), found.bytes().begin(), found.bytes().end());
  }
  // Every local shard holds its box.
  bool holds(const sharded_tensor<host_tensor>& found) const {
    return found.size() == size && std::all_of(found.local_shards().begin(), found.local_shards().end(),
                                               [&](auto& s) { return holds(s.tensor(), s.metadata().where()); });
  }
};

// This rank's part of a tensor that is cut like this.
sharded_tensor<host_tensor> cut(const model& whole, const std::vector<shard_metadata>& shards, const rank_group& group,
                                std::int32_t rank) {
  std::vector<shard<host_tensor>> local;
  for (const shard_metadata& s : shards)
    if (s.rank() == group.global(rank)) local.push_back(shard<host_tensor>::make(whole.tensor(s.where()), s).value());
  return sharded_tensor<host_tensor>::make(std::move(local), {shards, whole.size, {.type = whole.type}}, group, rank)
      .value();
}

result<void> failed(const std::string& what) {
  return fail(errc::invalid_argument, what);
}

// Runs on all ranks; the first error is the test's.
void on_all(std::int32_t ranks, function_ref<result<void>(any_communicator&)> body) {
  const auto ran = run_ranks(ranks, body);
  INFO((ran ? "" : to_string(ran.cause())));
  REQUIRE(ran);
}

// The one error that all ranks get from `body`; afterwards the communicator still works.
std::string error_on_all(std::int32_t ranks, function_ref<result<void>(any_communicator&)> body) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  on_all(ranks, [&](any_communicator& comm) -> result<void> {
    const auto found = body(comm);
    texts[static_cast<std::size_t>(comm.rank())] = found ? "no error" : to_string(found.cause());
    const auto after = comm.all_gather({}, {});
    return after ? result<void>() : result<void>(after.cause());
  });
  for (const std::string& text : texts) REQUIRE(text == texts[0]);
  return texts[0];
}

std::vector<shard_metadata> random_cut(std::mt19937_64& random, const extents& size, const rank_group& group) {
  for (;;) {
    auto drawn = random_shards::draw(random, group.size());
    if (drawn.size.size() != size.rank()) continue;
    // Boundaries of the drawn tensor, stretched to this one: still a cut of the whole.
    std::vector<shard_metadata> made;
    for (std::size_t i = 0; i < drawn.shards.size(); ++i) {
      extents offsets, sizes;
      for (std::size_t d = 0; d < size.rank(); ++d) {
        const auto stretched = [&](std::int64_t x) { return drawn.size[d] == 0 ? 0 : x * size[d] / drawn.size[d]; };
        const std::int64_t begin = stretched(drawn.shards[i].offsets[d]);
        const std::int64_t end = drawn.size[d] == 0 && drawn.shards.size() > 1
                                     ? 0
                                     : stretched(drawn.shards[i].offsets[d] + drawn.shards[i].sizes[d]);
        offsets.push_back(begin);
        sizes.push_back(end - begin);
      }
      made.push_back(at(group.global(drawn.owners[i]), offsets, sizes));
    }
    if (check_tensor(made, size)) return made;
  }
}

sharding_spec random_spec(std::mt19937_64& random, const extents& size, const rank_group& group) {
  if (size.empty() || random() % 2 == 0) return enumerable_sharding_spec{random_cut(random, size, group)};
  chunk_sharding_spec made;
  made.dim = static_cast<std::int32_t>(random_shards::below(random, static_cast<std::int64_t>(2 * size.rank()))) -
             static_cast<std::int32_t>(size.rank());
  auto ranks = group.globals();
  std::shuffle(ranks.begin(), ranks.end(), random);
  if (random() % 2 == 0)
    for (std::int64_t more = random_shards::below(random, 4); more > 0; --more) ranks.push_back(ranks[0]);
  if (random() % 2 == 0) ranks.resize(1 + random() % ranks.size());
  for (const std::int32_t rank : ranks) made.placements.push_back({rank, "", {}});
  if (random() % 3 == 0) made.rule = split_rule::balanced();
  return made;
}

rank_group random_group(std::mt19937_64& random, std::int32_t size) {
  std::vector<std::int32_t> globals;
  for (std::int32_t r = 0; r < size; ++r) globals.push_back(r * 2 + static_cast<std::int32_t>(random() % 2));
  std::shuffle(globals.begin(), globals.end(), random);
  return rank_group::make(globals).value();
}

dtype random_dtype(std::mt19937_64& random) {
  for (;;) {
    const auto all = all_dtypes();
    const dtype type = all[random() % all.size()];
    if (bits(type) % 8 == 0) return type;
  }
}

}  // namespace

TEST_CASE("grids are gathered to any rank, exactly, where PyTorch gathers them and where it fails") {
  const json cases = golden("grids");
  std::mt19937_64 random(7);
  std::size_t gathered = 0, torch_fails = 0;
  for (const json& c : cases) {
    INFO(c["note"] << " " << c["shape"] << " " << c["shards"]);
    const auto world = rank_group::world(c["world"]);
    std::vector<shard_metadata> shards;
    for (const json& s : c["shards"]) shards.push_back(at(s[0], to_extents(s[1]), to_extents(s[2])));
    const extents size = to_extents(c["shape"]);
    if (!check_tensor(shards, size)) continue;  // refused when it is made
    const auto whole = model::random(random, size, parse_dtype(c["dtype"].get<std::string>()).value());
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
  const json cases = golden("gather_loss");
  REQUIRE(cases.size() == 10);
  std::size_t torch_loses = 0;
  for (const json& c : cases) {
    INFO(c.dump());
    const auto world = rank_group::world(c["world"]);
    const dtype type = parse_dtype(c["dtype"].get<std::string>()).value();
    const json& source = c["ranks"][0]["source"];
    const auto count = static_cast<std::int64_t>(source.size());
    model whole{{count}, type, std::vector<std::byte>(source.size() * static_cast<std::size_t>(item_bytes(type)))};
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
  const json cases = golden("gather_group");
  REQUIRE(cases.size() == 4);
  std::mt19937_64 random(8);
  for (const json& c : cases) {
    INFO(c.dump());
    const auto group = rank_group::make(c["group"].get<std::vector<std::int32_t>>()).value();
    std::vector<shard_metadata> shards;
    for (const json& s : c["ranks"][c["group"][0].get<std::size_t>()]["shards"])
      shards.push_back({to_extents(s["offsets"]), to_extents(s["sizes"]),
                        parse_remote_device(s["placement"].get<std::string>()).value()});
    const auto whole = model::random(random, {4, 3}, dtype::float32);
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
  const json cases = golden("reshard");
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
    const auto whole = model::random(random, size, dtype::int64);
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
      auto expected = at(parse_remote_device(s["placement"].get<std::string>()).value().rank.value(),
                         to_extents(s["offsets"]), to_extents(s["sizes"]));
      for (std::size_t d = 0; d < size.rank(); ++d) expected.offsets[d] = std::min(expected.offsets[d], size[d]);
      CHECK(by_rank.at(*expected.rank()) == expected);
    }
  }
  CHECK(torch_fails > 10);
}

TEST_CASE("any cut becomes any other, and comes together again, on 1 to 8 ranks") {
  const auto seed = random_shards::seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int run = 0; run < random_shards::runs(300); ++run) {
    const auto group = random_group(random, static_cast<std::int32_t>(1 + random() % 8));
    extents size;
    for (std::uint64_t rank = random() % 5; rank > 0; --rank)
      size.push_back(random() % 15 == 0 ? 0 : 1 + random_shards::below(random, 7));
    const auto whole = model::random(random, size, random_dtype(random));
    const auto from = random_cut(random, size, group);
    const auto first = random_spec(random, size, group), second = random_spec(random, size, group);
    const auto destination = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(group.size()));
    INFO("run " << run << " " << to_string(size) << " over " << to_string(group));
    on_all(group.size(), [&](any_communicator& comm) -> result<void> {
      const auto start = cut(whole, from, group, comm.rank());
      const auto one = reshard(start, first, comm);
      if (!one) return one.cause();
      if (!whole.holds(*one)) return failed("other values after the first");
      const auto two = reshard(*one, second, comm);
      if (!two) return two.cause();
      if (!whole.holds(*two)) return failed("other values after the second");
      if (two->metadata() != build_metadata(second, size, {.type = whole.type}).value()) return failed("metadata");
      if (!whole.holds(start)) return failed("the source changed");
      auto all = gather(*two, destination, comm);
      if (!all) return all.cause();
      if (*all && !whole.holds(**all, box::whole(size))) return failed("other values gathered");
      auto dealt = shard_tensor(*all ? &**all : nullptr, first, destination, comm, group);
      if (!dealt) return dealt.cause();
      return whole.holds(*dealt) ? result<void>() : failed("other values dealt");
    });
  }
}

TEST_CASE("a gather writes into a view with any strides, and no byte beside it") {
  std::mt19937_64 random(11);
  const auto whole = model::random(random, {3, 4}, dtype::int16);
  const std::vector<shard_metadata> shards{at(0, {0, 0}, {3, 1}), at(1, {0, 1}, {3, 3})};
  std::vector<std::int16_t> memory(40, -1);
  on_all(2, [&](any_communicator& comm) -> result<void> {
    std::optional<tensor_view> to;
    if (comm.rank() == 1)
      to = tensor_view{reinterpret_cast<std::byte*>(memory.data() + 2), dtype::int16, {}, {3, 4}, {2, 8}};
    return gather(cut(whole, shards, rank_group::world(2), comm.rank()), 1, to, comm);
  });
  for (std::int64_t at_memory = 0; at_memory < 40; ++at_memory) {
    std::int16_t expected = -1;
    for (std::int64_t row = 0; row < 3; ++row)
      for (std::int64_t column = 0; column < 4; ++column)
        if (at_memory == 2 + 2 * row + 8 * column)
          std::memcpy(&expected, whole.bytes.data() + 2 * (4 * row + column), sizeof expected);
    CHECK(memory[static_cast<std::size_t>(at_memory)] == expected);
  }
}

TEST_CASE("wrong arguments on any rank are every rank's error, and nothing hangs") {
  std::mt19937_64 random(12);
  const auto whole = model::random(random, {6, 2}, dtype::float32);
  const auto group = rank_group::make({4, 0, 7}).value();
  const std::vector<shard_metadata> shards{at(4, {0, 0}, {2, 2}), at(0, {2, 0}, {2, 2}), at(7, {4, 0}, {2, 2})};
  const auto mine = [&](any_communicator& comm) { return cut(whole, shards, group, comm.rank()); };
  const auto view = [](dtype type, const extents& sizes) {
    return std::optional(tensor_view{nullptr, type, {}, sizes, contiguous_strides(sizes)});
  };

  CHECK(error_on_all(
            3, [&](any_communicator& comm) { return gather(mine(comm), 1, std::optional<tensor_view>(), comm); }) ==
        "the destination tensor of a gather must be specified on destination rank 0 (rank 0): expected a tensor of "
        "[6, 2], found none");
  CHECK(error_on_all(3,
                     [&](any_communicator& comm) {
                       return gather(mine(comm), 1,
                                     view(dtype::float32, comm.rank() == 1 ? extents{2, 6} : extents{6, 2}), comm);
                     }) ==
        "the destination tensor of a gather must not be specified on a rank other than destination rank 0 (rank 4): "
        "expected none, found a tensor of [6, 2]");
  CHECK(error_on_all(3,
                     [&](any_communicator& comm) {
                       return gather(mine(comm), 1, comm.rank() == 1 ? view(dtype::float64, {6, 2}) : std::nullopt,
                                     comm);
                     }) ==
        "the destination tensor of a gather does not have the tensor's dtype (rank 0): expected float32, found "
        "float64");
  CHECK(error_on_all(3, [&](any_communicator& comm) -> result<void> {
          auto found = gather(mine(comm), 3, comm);
          return found ? result<void>() : result<void>(found.cause());
        }) == "the destination rank is not in the group (rank 4): expected 0 to 2, found 3");
  const auto text = error_on_all(3, [&](any_communicator& comm) -> result<void> {
    auto found = gather(mine(comm), comm.rank() == 2 ? 1 : 0, comm);
    return found ? result<void>() : result<void>(found.cause());
  });
  CHECK(text.find("'destination rank' is 0 on ranks 0, 1, 1 on rank 2") != std::string::npos);

  const auto reshard_error = [&](auto spec) {
    return error_on_all(3, [&](any_communicator& comm) -> result<void> {
      auto found = reshard(mine(comm), spec(comm.rank()), comm);
      return found ? result<void>() : result<void>(found.cause());
    });
  };
  const auto chunks = [](std::int32_t dim, std::vector<std::int32_t> ranks) {
    chunk_sharding_spec made{dim, {}};
    for (const std::int32_t r : ranks) made.placements.push_back({r, "", {}});
    return sharding_spec(made);
  };
  CHECK(reshard_error([&](std::int32_t r) { return chunks(r == 2 ? 2 : 0, {0, 4, 7}); }) ==
        "invalid sharding dimension 2 (rank 7): expected -2 to 1, found 2");
  CHECK(reshard_error([&](std::int32_t) { return chunks(0, {0, 1}); }) ==
        "global rank 1 does not exist in the process group (rank 1): expected one of [4, 0, 7], found 1");
  CHECK(
      reshard_error([&](std::int32_t r) { return chunks(r == 1 ? 1 : 0, {0, 7}); }) ==
      "spec: ranks disagree on 1 of 2 arguments of reshard: 'spec' is 2 torch_chunk chunks along dimension 0 on "
      "rank:0/cpu, rank:7/cpu on ranks 0, 2, 2 torch_chunk chunks along dimension 1 on rank:0/cpu, rank:7/cpu on rank "
      "1 (rank 1): expected 2 torch_chunk chunks along dimension 0 on rank:0/cpu, rank:7/cpu on ranks 0, 2, found 2 "
      "torch_chunk chunks along dimension 1 on rank:0/cpu, rank:7/cpu on rank 1");
  const auto listed = [&](std::int32_t last) {
    enumerable_sharding_spec made;
    for (std::int64_t row = 0; row < 6; ++row)
      for (std::int64_t column = 0; column < 2; ++column) made.shards.push_back(at(4, {row, column}, {1, 1}));
    for (int i = 0; i < 8; ++i) made.shards.insert(made.shards.begin(), at(0, {0, 0}, {0, 1}));
    made.shards.back().placement->rank = last;
    return sharding_spec(made);
  };
  // Equal in words, as the list is long: the executor finds what differs.
  const auto beyond_words = reshard_error([&](std::int32_t r) { return listed(r == 1 ? 7 : 4); });
  CHECK(beyond_words.find("disagree") != std::string::npos);
  CHECK(beyond_words.find("rank 1") != std::string::npos);
  CHECK(reshard_error([&](std::int32_t) {
          return sharding_spec(enumerable_sharding_spec{{at(4, {0, 0}, {6, 1}), at(0, {0, 1}, {5, 1})}});
        }) == "cells are held by no rank in [5:6, 1:2) (rank 4)");

  CHECK(error_on_all(3, [&](any_communicator& comm) -> result<void> {
          auto found = shard_tensor<host_tensor>(nullptr, chunks(0, {4}), 2, comm, group);
          return found ? result<void>() : result<void>(found.cause());
        }) == "the source rank has no tensor to shard (rank 7)");
}

TEST_CASE("memory that is short on one rank is every rank's error") {
  const auto world = rank_group::world(2);
  const auto text = error_on_all(2, [&](any_communicator& comm) -> result<void> {
    const auto metadata = at(comm.rank(), {4 * comm.rank()}, {4});
    std::vector<shard<small_tensor>> local;
    local.push_back(
        shard<small_tensor>::make(small_tensor{fake_tensor::make({4}, {.type = dtype::int64}, 8)}, metadata).value());
    auto whole = init_from_local_shards(std::move(local), extents{8}, comm, world);
    if (!whole) return whole.cause();
    const sharding_spec uneven = enumerable_sharding_spec{{at(0, {0}, {2}), at(1, {2}, {6})}};
    auto found = reshard(*whole, uneven, comm);
    return found ? result<void>() : result<void>(found.cause());
  });
  CHECK(text == "a tensor of [6] cannot be allocated: more than 4 rows (rank 1)");
}

TEST_CASE("nested shards are refused with a hint, on every rank") {
  const auto text = error_on_all(2, [&](any_communicator& comm) -> result<void> {
    const auto world = rank_group::world(2);
    const auto mine = at(comm.rank(), {2 * comm.rank()}, {2});
    std::vector<shard<host_tensor>> local;
    if (comm.rank() == 0) {
      const sharded_tensor_metadata inner{{at(0, {0}, {2})}, {2}, {.type = dtype::int8}};
      std::vector<shard<host_tensor>> inside;
      inside.push_back(shard<host_tensor>::make(host_tensor::make(dtype::int8, {2}).value(), inner.shards[0]).value());
      auto nested = sharded_tensor<host_tensor>::make(std::move(inside), inner, world, 0);
      local.push_back(shard<host_tensor>::make(*std::move(nested), mine).value());
    } else {
      local.push_back(shard<host_tensor>::make(host_tensor::make(dtype::int8, {2}).value(), mine).value());
    }
    auto whole = init_from_local_shards(std::move(local), extents{4}, comm, world);
    if (!whole) return whole.cause();
    auto found = gather(*whole, 0, comm);
    return found ? result<void>() : result<void>(found.cause());
  });
  CHECK(text ==
        "a tensor with nested shards cannot be moved as it is (rank 0); flatten its shards first "
        "(flatten_nested_shards)");
}
