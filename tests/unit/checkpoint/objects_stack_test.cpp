// SPDX-License-Identifier: Apache-2.0
// Tests that objects of the deepest allowed nesting need little stack: 256 KiB are enough for every command.
#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "run_tool.hpp"
#include "safetensors_files.hpp"
#include "sanitized.hpp"

import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import shardmesh.safetensors;

using namespace shardmesh;

namespace {

#ifdef SHARDMESH_TEST_SANITIZED  // stack frames are larger
constexpr const char* little_stack = "ulimit -s 2048; ";
#else
constexpr const char* little_stack = "ulimit -s 256; ";
#endif

// A file that holds {"step": [[[...]]]}, with `levels` nested lists and a correct digest.
std::string file_of(std::size_t levels) {
  output_object step;
  step.key = "step";
  step.where = path{"step"};
  step.json = [levels]() -> result<std::string> {
    return R"({"kind":"list","type":"builtins.list","value":)" + std::string(levels, '[') + std::string(levels, ']') +
           "}";
  };
  const std::vector objects{std::move(step)};
  const nlohmann::json header{
      {"__metadata__",
       {{std::string(safetensors::embedded_objects_key), safetensors::format_objects(objects, {}).value()}}},
      {"w", {{"dtype", "U8"}, {"shape", {1}}, {"data_offsets", {0, 1}}}}};
  return safetensors_files::bytes(header.dump(), 1);
}

}  // namespace

TEST_CASE("objects that nest deep are copied or refused in little stack") {
  // Every command refuses a document of more than 2000 levels; a pickle is written for at most 1024.
  for (const std::size_t levels : {std::size_t{200}, std::size_t{1000}, std::size_t{1990}, std::size_t{2100}}) {
    INFO(levels << " levels");
    const safetensors_files::temporary_folder folder;
    const std::string source = folder.write("deep.safetensors", file_of(levels)).string();
    const std::string copy = (folder.path() / "copy").string();
    for (const std::string& command :
         {"inspect " + source, "inspect --json " + source, "verify " + source, "diff " + source + " " + source,
          "convert " + source + " " + copy + " --to dcp", "convert --force " + source + " " + copy + " --to hf"}) {
      const auto done = run_tool(command, little_stack);
      INFO(command << "\n" << done.err.substr(0, 2000));
      const bool is_refused = levels > 2000 || (levels > 1024 && command.ends_with("--to dcp"));
      CHECK(done.status == (is_refused ? 1 : 0));
      if (is_refused) CHECK(done.err.find("step") != std::string::npos);
    }
  }
}
