// SPDX-License-Identifier: Apache-2.0
// Tests the refusal of an overwrite: the whole message, with the files beside the checkpoint.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <scratch_folder.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.checkpoint;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

// Saves a small tensor, and returns the problem or "".
std::string problem_of_save(const fs::path& to, target_format format) {
  std::vector<std::int32_t> values{1, 2, 3, 4};
  const tensor_view whole{reinterpret_cast<std::byte*>(values.data()), dtype::int32, {}, {4}, {1}};
  save_tensor tensor{"w", {"w"}, {4}, {}};
  tensor.parts.push_back({box{{0}, {4}}, whole, 0});
  const auto saved = save(to, {&tensor, 1}, format, {.overwrite = true, .durable = false});
  return saved ? "" : to_string(saved.error());
}

void write_text(const fs::path& path, std::string_view text) {
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("a folder with other files beside its checkpoint is not replaced, and the message names each of them") {
  for (const auto& [format, name] : {std::pair{target_format::dcp, "dcp"}, std::pair{target_format::hf, "hf"}}) {
    INFO(name);
    const scratch_folder scratch;
    const fs::path folder = scratch / name;
    REQUIRE(problem_of_save(folder, format) == "");
    REQUIRE(problem_of_save(folder, format) == "");  // the checkpoint alone is replaced
    const auto refused_for = [&](const std::string& found) {
      return folder.string() + ": the folder holds more than the files of one checkpoint and is not replaced: found " +
             found + "; choose another destination or remove it yourself";
    };
    write_text(folder / "config.json", "{}");
    CHECK(problem_of_save(folder, format) == refused_for("config.json"));
    write_text(folder / "model.pt", "weights");
    CHECK(problem_of_save(folder, format) == refused_for("config.json, model.pt"));
    fs::remove(folder / "config.json");
    CHECK(problem_of_save(folder, format) == refused_for("model.pt"));
    fs::create_directory(folder / "logs");
    CHECK(problem_of_save(folder, format) == refused_for("logs/"));
    fs::remove(folder / "logs");
    fs::remove(folder / "model.pt");
    CHECK(problem_of_save(folder, format) == "");
  }
}
