// SPDX-License-Identifier: Apache-2.0
// Tests the names of step folders.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <scratch_folder.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.run;

using namespace shardmesh;

TEST_CASE("each convention names a step as its framework does, and reads the name back") {
  const std::vector<std::pair<step_names, std::vector<std::string>>> expected{
      {step_names::step, {"step-0", "step-100", "step-12345678"}},
      {step_names::checkpoint, {"checkpoint-0", "checkpoint-100", "checkpoint-12345678"}},
      {step_names::iteration, {"iter_0000000", "iter_0000100", "iter_12345678"}}};
  const std::vector<std::int64_t> steps{0, 100, 12345678};
  for (const auto& [names, folders] : expected)
    for (std::size_t i = 0; i < steps.size(); ++i) {
      INFO(folders[i]);
      CHECK(folder_name(steps[i], names) == folders[i]);
      CHECK(step_of_folder(folders[i], names) == steps[i]);
      for (const auto& [other, unused] : expected)
        if (other != names) CHECK(step_of_folder(folders[i], other) == std::nullopt);
    }
}

TEST_CASE("no other name is a step, so that no two folders are the same step") {
  for (const std::string_view name :
       {"step-", "step-0100", "step-+1", "step--1", "step- 1", "step-1 ", "step-1x", "step", "Step-1",
        "step-99999999999999999999", ".step-1.shardmesh-tmp-a-1-b", ""}) {
    INFO(name);
    CHECK(step_of_folder(name, step_names::step) == std::nullopt);
  }
  for (const std::string_view name : {"iter_100", "iter_00000100", "iter_-000001", "release"}) {
    INFO(name);
    CHECK(step_of_folder(name, step_names::iteration) == std::nullopt);
  }
}

TEST_CASE("the names of conventions are parsed as they are printed") {
  for (const step_names names : {step_names::step, step_names::checkpoint, step_names::iteration})
    CHECK(step_names_of(name(names)) == names);
  CHECK(step_names_of("lightning") == std::nullopt);
}

TEST_CASE("the convention of a folder is found, and two conventions in one folder are an error that names both") {
  const scratch_folder scratch;
  CHECK(find_step_names(scratch.path).value() == step_names::step);
  std::filesystem::create_directory(scratch / "iter_0000100");
  std::filesystem::create_directory(scratch / "logs");
  CHECK(find_step_names(scratch.path).value() == step_names::iteration);
  std::filesystem::create_directory(scratch / "checkpoint-5");
  const auto found = find_step_names(scratch.path);
  REQUIRE_FALSE(found);
  CHECK(found.error().code == errc::invalid_argument);
  const std::string text = to_string(found.error());
  INFO(text);
  CHECK(text.find("iter_0000100") != std::string::npos);
  CHECK(text.find("checkpoint-5") != std::string::npos);
  CHECK(check_first_step(scratch.path, step_names::step).error() == found.error());
  std::filesystem::remove(scratch / "checkpoint-5");
  CHECK(check_first_step(scratch.path, step_names::iteration));
  const auto others = check_first_step(scratch.path, step_names::step);
  REQUIRE_FALSE(others);
  CHECK(to_string(others.error()).find("expected names such as step-100, found iter_0000100; pass iter as the names") !=
        std::string::npos);
  std::filesystem::remove(scratch / "iter_0000100");
  for (const step_names names : {step_names::step, step_names::checkpoint, step_names::iteration})
    CHECK(check_first_step(scratch.path, names));
  const auto missing = find_step_names(scratch / "none");
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == errc::io);
}
