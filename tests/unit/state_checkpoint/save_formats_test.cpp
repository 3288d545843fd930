// SPDX-License-Identifier: Apache-2.0
// `save` of a state dict in every format: selection, objects that are left out, and the last check before the commit.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <safetensors_files.hpp>
#include <string>
#include <utility>
#include <vector>

#include "small_states.hpp"
import shardmesh.checkpoint_core;
import shardmesh.collective_checkpoint;
import shardmesh.state_checkpoint;

using namespace shardmesh;
using namespace small_states;
namespace fs = std::filesystem;

TEST_CASE("one process saves a temporary state, in another format, and through a selection") {
  const safetensors_files::temporary_folder scratch;
  const fs::path file = scratch.path() / "model.safetensors";
  rank_save_options options = quick;
  options.format = target_format::safetensors;
  options.selection.only = {key_pattern::compile("model\\..*").value()};
  const auto report = save(file, make_dict(true), options);
  INFO(text_of(report));
  REQUIRE(report);
  const auto opened = open(file);
  REQUIRE(opened);
  CHECK(opened->format() == checkpoint_format::safetensors);
  REQUIRE(opened->tensors().size() == 1);
  CHECK(opened->tensors().front().key == "model.w");
  CHECK(opened->objects().empty());
}

TEST_CASE("one process writes the formats that ranks do not write together") {
  const safetensors_files::temporary_folder scratch;
  const dict state = make_dict(true);
  for (const auto& [to, name] : {std::pair{target_format::pt, "model.pt"},
                                 std::pair{target_format::torch_checkpointing, "torch_checkpointing"}}) {
    CAPTURE(name);
    rank_save_options options = quick;
    options.format = to;
    const auto report = save(scratch.path() / name, state, options);
    INFO(text_of(report));
    REQUIRE(report);
    CHECK(report->tensors == 1);
    const auto opened = open(scratch.path() / name);
    INFO(text_of(opened));
    REQUIRE(opened);
    REQUIRE(opened->tensors().size() == 1);
    CHECK(opened->tensors().front().key == "model.w");
    const auto read = opened->state_dict();
    INFO(text_of(read));
    REQUIRE(read);
    check_is_filled(*read);
  }
  // Ranks refuse them.
  const auto refused = run_ranks(1, [&](any_communicator& comm) -> result<void> {
    rank_save_options options = quick;
    options.format = target_format::pt;
    const auto report = save(scratch.path() / "ranks.pt", state, comm, options);
    return report ? result<void>() : report.error();
  });
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unsupported);
}

TEST_CASE("one process selects, and leaves objects out, in every format") {
  const safetensors_files::temporary_folder scratch;
  rank_save_options options = quick;
  options.skip_objects = true;
  for (const auto& [to, name] : {std::pair{target_format::dcp, "dcp"}, std::pair{target_format::pt, "model.pt"}}) {
    CAPTURE(name);
    options.format = to;
    options.selection = {.rename = {parse_rename_rule(R"(model\.(.*)=\1)").value()}};
    const auto report = save(scratch.path() / name, make_dict(true), options);
    INFO(text_of(report));
    REQUIRE(report);
    CHECK(report->skipped_objects == 2);
    const auto opened = open(scratch.path() / name);
    REQUIRE(opened);
    REQUIRE(opened->tensors().size() == 1);
    CHECK(opened->tensors().front().key == "w");
    CHECK(opened->objects().empty());
    options.selection = {.only = {key_pattern::compile("nothing").value()}};
    const auto nothing = save(scratch.path() / (std::string("no-") + name), make_dict(true), options);
    REQUIRE_FALSE(nothing);
    CHECK(nothing.error().code == errc::invalid_argument);
    CHECK(nothing.error().ranks.empty());
  }
}

TEST_CASE("the last check of a save is called in every format and on every rank, and its error leaves nothing behind") {
  const safetensors_files::temporary_folder scratch;
  const dict state = make_dict(true);
  rank_save_options options = quick;
  for (const target_format format :
       {target_format::dcp, target_format::safetensors, target_format::hf, target_format::pt,
        target_format::torch_checkpointing, target_format::gguf, target_format::npz}) {
    CAPTURE(target_of(format).name);
    options.format = format;
    int calls = 0;
    options.hooks.last_check = [&]() -> result<void> {
      ++calls;
      return fail(errc::bad_format, "the check found something");
    };
    const auto refused =
        save(scratch.path() / (std::string("new") + std::string(target_of(format).extension)), state, options);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message == "the check found something");
    CHECK(calls == 1);
    CHECK(fs::is_empty(scratch.path()));
  }
  options.format = target_format::dcp;
  const std::vector<std::string> outcomes = on_two_ranks([&](any_communicator& comm) {
    rank_save_options own = options;
    own.hooks.last_check = [&]() -> result<void> {
      if (comm.rank() == 0) return {};
      return fail(errc::bad_format, "the check found something");
    };
    return text_of(save(scratch.path() / "new", state, comm, own));
  });
  for (const std::string& outcome : outcomes) CHECK(outcome.find("the check found something") != std::string::npos);
  CHECK(fs::is_empty(scratch.path()));
}
