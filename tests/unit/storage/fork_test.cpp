// SPDX-License-Identifier: Apache-2.0
// Tests a fork during a save: the child's copy must not remove what the parent writes.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <filesystem>
#include <forked_child.hpp>
#include <fstream>
#include <iterator>
#include <optional>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <utility>

import shardmesh.storage;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

TEST_CASE("a forked child that destroys its copy of an output leaves the parent's files alone") {
  const scratch_folder work;
  const std::string text = "whole";
  for (const bool is_folder : {false, true}) {
    const fs::path destination = work / (is_folder ? "folder" : "file");
    std::optional<staged_output> output =
        is_folder ? staged_output::directory(destination).value() : staged_output::file(destination).value();
    const std::int32_t file = output->add_file(is_folder ? "a" : "").value();
    REQUIRE(output->write(file, 0, bytes_of(text)));
    std::optional<staged_output> joined = staged_output::join(output->folder()).value();
    CHECK(status_of_child([&] {
            joined.reset();
            output.reset();
            return 0;
          }) == 0);
    joined->release();
    INFO(destination);
    REQUIRE(output->commit());
    CHECK(text_of(is_folder ? destination / "a" : destination) == text);
  }
}

TEST_CASE("what a forked child makes itself is taken away with the object") {
  const scratch_folder work;
  CHECK(status_of_child([&] {
          const auto output = staged_output::directory(work / "folder").value();
          return output.folder().empty() ? 1 : 0;
        }) == 0);
  CHECK(fs::is_empty(work.path));
}
