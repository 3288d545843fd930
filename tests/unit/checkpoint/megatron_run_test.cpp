// SPDX-License-Identifier: Apache-2.0
// Tests a Megatron run folder whose tracker file is a link: a link within the folder is followed, a link out of it is
// refused.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <golden.hpp>
#include <memory>
#include <scratch_folder.hpp>
#include <string>
#include <vector>

import shardmesh.checkpoint_core;
import shardmesh.checkpoint;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

constexpr const char* tracker = "latest_checkpointed_iteration.txt";

// A run with iterations 5 and 10, of which only the latter holds data.
struct run_folder {
  scratch_folder scratch;
  fs::path run = scratch / "run";

  run_folder() {
    fs::create_directories(run / "iter_0000005");
    fs::copy(golden::folder() / "single_rank/checkpoint", run / "iter_0000010");
  }
  void write(const fs::path& file, const std::string& text) const { std::ofstream(file) << text; }

  // The keys of the opened checkpoint, or the error.
  std::vector<std::string> opened() const {
    const auto reader = open_checkpoint(run);
    if (!reader) return {to_string(reader.error())};
    std::vector<std::string> keys;
    for (const tensor_entry& tensor : (*reader)->contents().tensors) keys.push_back(tensor.key);
    return keys;
  }
};

}  // namespace

TEST_CASE("the tracker of a Megatron run may be a link within its folder") {
  const run_folder folder;
  folder.write(folder.run / tracker, "10\n");
  const std::vector<std::string> keys = folder.opened();
  REQUIRE(keys.size() > 1);
  fs::remove(folder.run / tracker);
  folder.write(folder.run / "now.txt", "10\n");
  for (const fs::path& target : {fs::path("now.txt"), fs::path("iter_0000005/../now.txt"), folder.run / "now.txt"}) {
    INFO(target);
    fs::create_symlink(target, folder.run / tracker);
    CHECK(folder.opened() == keys);
    fs::remove(folder.run / tracker);
  }
}

TEST_CASE("the tracker of a Megatron run that is a link out of its folder is refused, and its text is not told") {
  const run_folder folder;
  folder.write(folder.scratch / "secret.txt", "10\n");
  folder.write(folder.scratch / "word.txt", "swordfish\n");
  for (const fs::path& target :
       {fs::path("../secret.txt"), fs::path("../word.txt"), folder.scratch / "word.txt", fs::path("/etc/hostname")}) {
    INFO(target);
    fs::create_symlink(target, folder.run / tracker);
    CHECK(folder.opened() == std::vector<std::string>{(folder.run / tracker).string() +
                                                      ": a symbolic link leads out of the checkpoint's folder"});
    fs::remove(folder.run / tracker);
  }
}

TEST_CASE("a tracker that is a link to nothing, or to itself, is an error that names it") {
  const run_folder folder;
  for (const char* const target : {"nothing.txt", tracker}) {
    INFO(target);
    fs::create_symlink(target, folder.run / tracker);
    const std::vector<std::string> said = folder.opened();
    REQUIRE(said.size() == 1);
    CHECK(said[0].find(folder.run.string()) == 0);
    fs::remove(folder.run / tracker);
  }
}
