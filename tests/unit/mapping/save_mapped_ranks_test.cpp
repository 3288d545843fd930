// SPDX-License-Identifier: Apache-2.0
// Tests that the state of several ranks is saved under another naming convention.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <filesystem>
#include <functional>
#include <map>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "random_mappings.hpp"
#include "small_tensors.hpp"

import shardmesh.checkpoint;
import shardmesh.collective_checkpoint;
import shardmesh.comm;
import shardmesh.mapping;
import shardmesh.torch_file;
import shardmesh.tree;

using namespace shardmesh;
using small_tensors::counted;
using small_tensors::tensors;

namespace {

constexpr const char* fuse =
    "left = 'a'\nright = 'b'\n[sizes]\nn = 5\nm = 2\n[rename]\n'w' = 'v'\n[[rule]]\nname = 'fuse'\nleft.q = 'q'\n"
    "left.k = 'k'\nright = 'qk'\nindex = 'q: n h, k: m h -> qk: [q:n | k:m] h'\n";

const tensors parts{{"q", counted({5, 2}, 1)}, {"k", counted({2, 2}, 11)}, {"w", counted({3}, 20)}};
const tensors fused{{"qk", counted({7, 2}, 1)}, {"v", counted({3}, 20)}};

// A rank's rows of each tensor, as views of `all`.
const_local_state rows_on(tensors& all, std::int32_t rank, std::int32_t ranks) {
  const_local_state made;
  for (auto& [key, one] : all) {
    const_local_state_tensor tensor{path{key}, one.shape, dtype::float32, {}, {}};
    const std::vector<box> rows = small_tensors::rows_of(one.shape, ranks);
    if (static_cast<std::size_t>(rank) < rows.size()) {
      const box& where = rows[static_cast<std::size_t>(rank)];
      tensor.parts.push_back({where, subview(small_tensors::view_of(one), where)});
    }
    made.tensors.push_back(std::move(tensor));
  }
  return made;
}

// Saves on `world` ranks; `change` edits a rank's state. Returns the outcome, which is the same on every rank.
std::string saved(const std::filesystem::path& destination, const tensors& all, std::int32_t world,
                  const std::vector<mapping_rules>& mappings, target_format format,
                  const std::function<void(const_local_state&, std::int32_t)>& change = {}) {
  std::vector<std::string> outcomes(static_cast<std::size_t>(world));
  run_ranks(world, [&](any_communicator& comm) -> result<void> {
    tensors own = all;
    const_local_state held = rows_on(own, comm.rank(), world);
    if (change) change(held, comm.rank());
    const auto done = save_mapped(destination, held, mappings, {}, comm, {.format = format, .durable = false});
    std::string& outcome = outcomes[static_cast<std::size_t>(comm.rank())];
    outcome = done ? "saved" : to_string(done.error());
    if (done && !done->notes.at(0).starts_with("mapped from ")) outcome = "the first note is " + done->notes[0];
    return {};
  }).value();
  for (const std::string& one : outcomes) CHECK(one == outcomes[0]);
  return outcomes[0];
}

std::vector<mapping_rules> rules_of(const std::string& text) {
  return {parse_mapping(text).value()};
}

local_state_object object_of(const std::string& key, double value) {
  return {path{key}, {}, {plain_value{value}}};
}

local_state_object list_of(const std::string& key, const std::string& json) {
  local_state_object made = torch_file::object_of_archive(torch_file::archive_from_json(json).value()).value();
  made.where = path{key};
  return made;
}

std::map<std::string, std::string> objects_of(checkpoint_reader& reader) {
  std::map<std::string, std::string> made;
  for (std::size_t i = 0; i < reader.contents().objects.size(); ++i)
    made[reader.contents().objects[i].key] = reader.read_object(i).value().json;
  return made;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("ranks save random states under other names, in every format that ranks write") {
  dice roll(random_seed::seed());
  const scratch_folder folder;
  for (std::uint64_t i = 0; i < random_seed::rounds(20); ++i) {
    const auto mapping = random_mappings::draw(roll);
    const mapping_rules rules = random_mappings::rules_of(mapping);
    INFO("SHARDMESH_SEED=" << random_seed::seed() << " round " << i << ": " << to_string(rules.rules[0].index));
    tensors left, right;
    random_mappings::fill(mapping, left, right);
    const auto world = static_cast<std::int32_t>(1 + roll.below(4));
    const auto format = roll.pick({target_format::dcp, target_format::safetensors, target_format::hf});
    const auto name = std::to_string(i) + (format == target_format::safetensors ? ".safetensors" : "");
    CHECK(saved(folder / ("there" + name), left, world, {rules}, format) == "saved");
    CHECK(small_tensors::read_all(*open_checkpoint(folder / ("there" + name)).value()) == right);
    CHECK(saved(folder / ("back" + name), right, world, {rules.inverse()}, format) == "saved");
    CHECK(small_tensors::read_all(*open_checkpoint(folder / ("back" + name)).value()) == left);
  }
}

TEST_CASE("a large tensor is written by all ranks, each with an even part") {
  const scratch_folder folder;
  const tensors large{{"q", counted({5, 65536}, 1)}, {"k", counted({2, 65536}, 1)}, {"w", counted({3}, 20)}};
  CHECK(saved(folder / "a", large, 3, rules_of(fuse), target_format::dcp) == "saved");
  const auto written = open_checkpoint(folder / "a").value();
  const tensor_entry& qk = *written->contents().find("qk");
  REQUIRE(qk.chunk_count == 3);
  std::vector<std::int64_t> rows;
  for (std::int32_t c = qk.first_chunk; c < qk.first_chunk + 3; ++c)
    rows.push_back(written->contents().chunk_box(qk, c).sizes[0]);
  std::sort(rows.begin(), rows.end());
  CHECK(rows == std::vector<std::int64_t>{2, 2, 3});
  tensors read = small_tensors::read_all(*written);
  CHECK(read.at("v") == large.at("w"));
  tensors expected = large;
  CHECK(small_tensors::part_of(read.at("qk"), {{0, 0}, {5, 65536}}) == expected.at("q"));
  CHECK(small_tensors::part_of(read.at("qk"), {{5, 0}, {2, 65536}}) == expected.at("k"));
}

TEST_CASE("objects of parameters follow them on every rank, and other objects stay as they are") {
  const scratch_folder folder;
  const auto with_rates = [](double of_k) {
    return [of_k](const_local_state& held, std::int32_t) {
      held.objects = {object_of("epoch", 3), object_of("optim.param_groups.q.lr", 0.5),
                      object_of("optim.param_groups.k.lr", of_k), object_of("optim.param_groups.w.lr", 0.25)};
    };
  };
  CHECK(saved(folder / "a", parts, 2, rules_of(fuse), target_format::dcp, with_rates(0.5)) == "saved");
  const auto written = open_checkpoint(folder / "a").value();
  CHECK(small_tensors::read_all(*written) == fused);
  std::vector<std::string> keys;
  for (const object_entry& object : written->contents().objects) keys.push_back(object.key);
  std::sort(keys.begin(), keys.end());
  CHECK(keys == std::vector<std::string>{"epoch", "optim.param_groups.qk.lr", "optim.param_groups.v.lr"});
  const std::string apart = saved(folder / "b", parts, 2, rules_of(fuse), target_format::dcp, with_rates(0.125));
  CHECK(
      contains(apart, "optim.param_groups.qk.lr: the objects 'optim.param_groups.q.lr' and 'optim.param_groups.k.lr'"));
  CHECK(!std::filesystem::exists(folder / "b"));
}

TEST_CASE("lists of parameters get the new names on every rank, through every mapping of a chain") {
  const scratch_folder folder;
  const auto with_lists = [](const_local_state& held, std::int32_t) {
    held.objects = {list_of("optim.param_groups.0.params", R"(["w", "q", "k"])"),
                    list_of("optim.param_groups.1.params", "[]"), list_of("optim.param_groups.2.params", R"(["x", 5])"),
                    object_of("optim.param_groups.0.lr", 0.5)};
  };
  const std::vector<mapping_rules> there = rules_of(fuse);
  CHECK(saved(folder / "a", parts, 2, there, target_format::dcp, with_lists) == "saved");
  const auto written = open_checkpoint(folder / "a").value();
  CHECK(small_tensors::read_all(*written) == fused);
  std::map<std::string, std::string> objects = objects_of(*written);
  CHECK(objects.size() == 4);
  CHECK(objects["optim.param_groups.0.lr"] == R"({"$float":"0x1.0000000000000p-1"})");
  CHECK(objects["optim.param_groups.0.params"] == R"(["v","qk"])");
  CHECK(objects["optim.param_groups.1.params"] == "[]");
  CHECK(objects["optim.param_groups.2.params"] == R"(["x",5])");
  const std::vector<mapping_rules> chain{there[0], there[0].inverse()};
  CHECK(saved(folder / "b", parts, 3, chain, target_format::dcp, with_lists) == "saved");
  CHECK(objects_of(*open_checkpoint(folder / "b").value()).at("optim.param_groups.0.params") == R"(["w","q","k"])");
}

TEST_CASE("moments follow their parameters on ranks, and operations on values refuse them by name") {
  const scratch_folder folder;
  tensors with_state = random_mappings::with_state(parts), expected = random_mappings::with_state(fused);
  CHECK(saved(folder / "a", with_state, 3, rules_of(fuse), target_format::dcp) == "saved");
  CHECK(small_tensors::read_all(*open_checkpoint(folder / "a").value()) == expected);
  const tensors norm{{"w", counted({3}, 1)}, {"optim.state.w.exp_avg", counted({3}, 4)}};
  const std::string rules = "left = 'a'\nright = 'b'\n[[rule]]\nleft = 'w'\nright = 'v'\nvalues = ['x + 1']\n";
  const std::string refused = saved(folder / "b", norm, 2, rules_of(rules), target_format::dcp);
  CHECK(contains(refused, "optim.state.w.exp_avg: the rule 'w'"));
  CHECK(contains(refused, "has operations on values, which optimizer state cannot follow"));
  CHECK(!std::filesystem::exists(folder / "b"));
  CHECK(saved(folder / "c", norm, 2, rules_of(rules + "[optimizer]\nvalues = 'keep'\n"), target_format::dcp) ==
        "saved");
  CHECK(small_tensors::read_all(*open_checkpoint(folder / "c").value()) ==
        tensors{{"v", counted({3}, 2)}, {"optim.state.v.exp_avg", counted({3}, 4)}});
}

TEST_CASE("tied tensors are compared, also if other ranks hold the partner") {
  const scratch_folder folder;
  const std::string rules =
      "left = 'a'\nright = 'b'\n[rename]\n'embed' = 'v'\n[[tie]]\nside = 'left'\nname = 'head'\nsame_as = 'embed'\n";
  const tensors tied{{"embed", counted({4, 2})}, {"head", counted({4, 2})}};
  // Rank 1 holds the whole head, and the ranks have rows of the embedding.
  const auto place = [](float last) {
    return [last](const_local_state& held, std::int32_t rank) {
      static thread_local small_tensors::tensor head;
      head = counted({4, 2});
      head.values.back() = last;
      held.tensors[1].parts.clear();
      if (rank == 1) held.tensors[1].parts.push_back({box::whole({4, 2}), small_tensors::view_of(head)});
    };
  };
  CHECK(saved(folder / "a", tied, 3, rules_of(rules), target_format::dcp, place(7)) == "saved");
  CHECK(small_tensors::read_all(*open_checkpoint(folder / "a").value()) == tensors{{"v", counted({4, 2})}});
  const std::string apart = saved(folder / "b", tied, 3, rules_of(rules), target_format::dcp, place(8));
  CHECK(contains(apart, "head: the mapping ties this tensor to embed, and their values differ"));
  CHECK(!std::filesystem::exists(folder / "b"));
}

TEST_CASE("a defect of one rank's state or mapping is the same error on every rank, and no file exists") {
  const scratch_folder folder;
  const auto refused = [&](const std::function<void(const_local_state&, std::int32_t)>& change) {
    const std::string found = saved(folder / "a", parts, 3, rules_of(fuse), target_format::dcp, change);
    CHECK(!std::filesystem::exists(folder / "a"));
    return found;
  };
  const auto on_rank_1 = [](const std::function<void(const_local_state&)>& edit) {
    return [edit](const_local_state& held, std::int32_t rank) {
      if (rank == 1) edit(held);
    };
  };
  const std::string gap = refused(on_rank_1([](const_local_state& held) { held.tensors.back().parts.clear(); }));
  CHECK(contains(gap, "w: [1:2) is held by no rank"));
  const std::string shape = refused(on_rank_1([](const_local_state& held) { held.tensors.back().shape = {4}; }));
  CHECK(contains(shape, "w: ranks disagree on the shape of a tensor"));
  const std::string type = refused(on_rank_1([](const_local_state& held) { held.tensors.back().type = dtype::int32; }));
  CHECK(contains(type, "w: ranks disagree on the dtype of a tensor"));
  const std::string twice =
      refused(on_rank_1([](const_local_state& held) { held.tensors.push_back(held.tensors.front()); }));
  CHECK(contains(twice, "k: two tensors of the state have the same name"));
  const std::string memory =
      refused(on_rank_1([](const_local_state& held) { held.tensors.back().parts[0].memory.data = nullptr; }));
  CHECK(contains(memory, "w -> v"));
  const std::string list = refused([](const_local_state& held, std::int32_t) {
    held.objects = {list_of("optim.param_groups.0.params", R"(["q", "w"])"),
                    list_of("optim.param_groups.1.params", R"(["k"])")};
  });
  CHECK(contains(list, "optim.param_groups.0.params: the rule 'fuse'"));
  CHECK(contains(list, "joins parameters of different groups of the optimizer"));
  const std::string missing = refused([](const_local_state& held, std::int32_t) { held.tensors.pop_back(); });
  CHECK(contains(missing, "w: "));
  CHECK(contains(missing, "the checkpoint lacks it"));
}
