// SPDX-License-Identifier: Apache-2.0
// Tests `shardmesh delta` on a golden checkpoint and on a delta of tests/data.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <refusal.hpp>
#include <run_tool.hpp>
#include <scratch_folder.hpp>
#include <string>

namespace {

const std::string golden = std::string(SHARDMESH_TEST_DATA) + "/golden/single_rank/checkpoint";
const std::string base = std::string(SHARDMESH_TEST_DATA) + "/delta/base.safetensors";
const std::string written = std::string(SHARDMESH_TEST_DATA) + "/delta/next.delta";

}  // namespace

TEST_CASE("delta make and delta apply carry a checkpoint to a copy of its base") {
  const scratch_folder folder;
  const std::string delta = (folder / "new.delta").string(), made = (folder / "made").string();
  const tool_output make = run_tool("delta make " + golden + " " + golden + " " + delta);
  INFO(make.err);
  CHECK(make.status == 0);
  CHECK(make.err.empty());
  CHECK(make.out.starts_with(delta + ": "));
  CHECK(make.out.ends_with(" for 2 tensors (64 bytes) and 1 object: 0 changed, 0 added, 2 unchanged, 0 removed\n"));
  const tool_output apply = run_tool("delta apply " + golden + " " + delta + " " + made + " --to dcp");
  INFO(apply.err);
  CHECK(apply.status == 0);
  CHECK(apply.out == made + ": wrote 2 tensors (64 bytes) and 1 object in 1 file\n");
  CHECK(run_tool("diff " + golden + " " + made).out == "equal: 2 tensors (64 bytes) and 1 object\n");
}

TEST_CASE("delta make prints one document with the counts") {
  const scratch_folder folder;
  const std::string made = (folder / "made.safetensors").string();
  REQUIRE(run_tool("delta apply " + base + " " + written + " " + made).status == 0);
  const tool_output run =
      run_tool("delta make " + base + " " + made + " " + (folder / "d").string() + " --json --level -7");
  CHECK(run.status == 0);
  const auto document = nlohmann::json::parse(run.out);
  CHECK(document["ok"] == true);
  CHECK(document["tensors"] == 4);
  CHECK(document["changed"] == 1);
  CHECK(document["unchanged"] == 1);
  CHECK(document["added"] == 2);
  CHECK(document["removed"] == 0);
  CHECK(document["bytes"] == 48 + 48 + 20);
  CHECK(document["delta_bytes"] == std::filesystem::file_size(folder / "d"));
  CHECK(document["skipped_tensors"] == 0);
  CHECK(document["problems"].empty());
}

TEST_CASE("delta refuses options of the other action, and names without a format") {
  const scratch_folder folder;
  const std::string out = (folder / "out").string();
  CHECK(says(refusal("delta make " + base + " " + base + " " + out + " --to dcp", 2), "'delta apply' only"));
  CHECK(says(refusal("delta make " + base + " " + base + " " + out + " --memory 1GiB", 2), "'delta apply' only"));
  CHECK(says(refusal("delta apply " + base + " " + written + " " + out + " --level 1", 2), "'delta make' only"));
  CHECK(says(refusal("delta apply " + base + " " + written + " " + out, 2), "pass --to dcp"));
  CHECK(says(refusal("delta compact " + base + " " + written + " " + out, 2), "make, apply"));
  CHECK(says(refusal("delta apply " + base + " " + written + " " + base + " --force", 2),
             "the destination is the source"));
  const tool_output other = run_tool("delta apply " + golden + " " + written + " " + out + " --to dcp");
  CHECK(other.status == 1);
  CHECK(says(other.err, "changed: the base lacks a tensor"));
  CHECK(says(other.err, "kept: the base lacks a tensor"));
  CHECK_FALSE(std::filesystem::exists(out));
}
