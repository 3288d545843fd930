// SPDX-License-Identifier: Apache-2.0
// Runs each command on one checkpoint with several problems of different exit statuses.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <run_tool.hpp>
#include <string>

namespace fs = std::filesystem;

TEST_CASE("of several problems, the highest exit status counts in every command, whichever problem is first") {
  const scratch_folder scratch;
  const fs::path whole = fs::path(SHARDMESH_TEST_DATA) / "golden/options_no_collectives/checkpoint";
  const fs::path damaged = scratch / "damaged";
  fs::create_directory(damaged);
  for (const auto& entry : fs::directory_iterator(whole)) fs::copy(entry.path(), damaged);
  // The first problem is the data's: rank 0's file is too short. Others are the system's: rank 1's file is a link to
  // itself.
  fs::resize_file(damaged / "__0_0.distcp", 3000);
  fs::remove(damaged / "__1_0.distcp");
  fs::create_symlink("__1_0.distcp", damaged / "__1_0.distcp");
  const std::string out = (scratch / "out").string();
  for (const std::string& call :
       {"inspect " + damaged.string(), "verify " + damaged.string(), "diff " + damaged.string() + " " + whole.string(),
        "convert " + damaged.string() + " " + out + " --to dcp",
        "reshard " + damaged.string() + " " + out + " --mesh 2 --default R",
        "delta make " + whole.string() + " " + damaged.string() + " " + out}) {
    const tool_output run = run_tool(call);
    INFO(call << "\n" << run.err);
    CHECK(run.status == 3);
    CHECK(run.err.starts_with((damaged / "__0_0.distcp").string()));
    CHECK(run.err.find("an item lies outside of its file") < run.err.find("Too many levels of symbolic links [io]"));
    CHECK(run.err.find("Too many levels of symbolic links [io]") != std::string::npos);
    CHECK_FALSE(fs::exists(out));
  }
}
