// SPDX-License-Identifier: Apache-2.0
// Tests entries whose names are no text of Python: no file that Python reads gets them.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <gguf_files.hpp>
#include <scratch_folder.hpp>
#include <string>

import shardmesh.checkpoint;
import shardmesh.checkpoint_core;

using namespace shardmesh;
namespace fs = std::filesystem;
namespace made = gguf_files;

namespace {

// A file with a tensor and a value of each kind of name.
fs::path source_in(const fs::path& folder) {
  made::file file;
  file.tensor("w", {2}, made::f32, 0).tensor("bad\xff", {2}, made::f32, 32);
  file.value("kept", made::uint32, made::number(std::uint32_t{7}));
  file.value("value\xff", made::uint32, made::number(std::uint32_t{7}));
  file.data = std::string(64, '\0');
  const fs::path path = folder / "names.gguf";
  std::ofstream(path, std::ios::binary) << file.bytes();
  return path;
}

}  // namespace

TEST_CASE("a name that is not UTF-8 is refused by every target, and left out with skip_unsupported") {
  const scratch_folder scratch;
  const fs::path source = source_in(scratch.path);
  for (const target& to : targets()) {
    INFO(to.name);
    const fs::path copy = scratch / ("copy." + std::string(to.name));
    const auto refused = convert(*open_checkpoint(source).value(), copy, {.format = to.format});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::unsupported);
    CHECK(refused.error().key.ends_with('\xff'));
    CHECK_FALSE(fs::exists(copy));
    const auto report =
        convert(*open_checkpoint(source).value(), copy, {.format = to.format, .skip_unsupported = true}).value();
    CHECK(report.skipped_tensors == 1);
    CHECK(report.skipped_objects == 1);
    const auto kept = open_checkpoint(copy).value();
    CHECK(kept->problems().empty());
    CHECK(kept->contents().tensors.size() == 1);
    CHECK(kept->contents().find("w") != nullptr);
    CHECK(kept->contents().find_object("kept") != nullptr);
    CHECK(kept->contents().find_object("value\xff") == nullptr);
  }
}
