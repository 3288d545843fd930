// SPDX-License-Identifier: Apache-2.0
// Tests URLs on the command line: an unknown scheme, a lost slash, and secrets that no message may repeat.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <refusal.hpp>
#include <scratch_folder.hpp>
#include <string>
#include <vector>

namespace {

const std::string checkpoint = SHARDMESH_TEST_DATA "/golden/single_rank/checkpoint";

}  // namespace

TEST_CASE("commands refuse a URL of an unknown scheme, and name the scheme but no secret") {
  const std::string url = " 'abc://user:s3cr3t@host/run?signature=s3cr3t' ";
  for (const std::string& command :
       std::vector<std::string>{"inspect" + url, "diff" + url + url, "convert" + url + "/nowhere/copy.pt",
                                "reshard" + url + "/nowhere/copy --mesh dp=2"}) {
    const std::string line = refusal(command, 1);
    CHECK(says(line, "abc://host/run: "));
    CHECK(says(line, "\"abc\""));
    CHECK(line.find("s3cr3t") == std::string::npos);
  }
  const auto verified = run_tool("verify" + url);
  CHECK(verified.status == 1);
  CHECK(says(verified.err, "abc://host/run: "));
  CHECK((verified.out + verified.err).find("s3cr3t") == std::string::npos);
}

TEST_CASE("commands say that a path looks like a URL with one slash, and write nothing") {
  const scratch_folder scratch;
  const std::string there = " '" + checkpoint + "' ", url = " 's3:/bucket/run' ";
  for (const std::string& command : std::vector<std::string>{
           "inspect" + url, "diff" + url + there, "diff" + there + url, "convert" + url + "copy.pt",
           "convert" + there + url + "--to dcp", "convert" + there + "s3:/bucket/run.pt",
           "reshard" + there + url + "--like" + there, "delta make" + there + there + url, "clean" + url,
           "run list" + url, "inspect" + there + "--html s3:/bucket/run.html"}) {
    const auto run = run_tool(command, "cd '" + scratch.path.string() + "' && ");
    INFO(command << ": " << run.err);
    CHECK(run.status == 2);
    CHECK(run.out.empty());
    CHECK(says(run.err, ": looks like a URL with one slash: expected s3://, found s3:/; write s3://bucket/run"));
  }
  CHECK(std::filesystem::is_empty(scratch.path));
}

TEST_CASE(
    "a local folder whose name is that of a scheme is read as a path, and written as one that begins with a dot") {
  const scratch_folder scratch;
  const std::string there = " '" + checkpoint + "' ", in = "cd '" + scratch.path.string() + "' && ";
  REQUIRE(std::filesystem::create_directory(scratch / "s3:"));
  CHECK(run_tool("convert" + there + "s3:/copy --to dcp", in).status == 2);
  CHECK(run_tool("convert" + there + "./s3:/copy --to dcp", in).status == 0);
  CHECK(run_tool("verify s3:/copy", in).status == 0);
  CHECK(run_tool("verify ./s3:/copy", in).status == 0);
}

TEST_CASE("clean refuses a URL under which nothing is written") {
  const std::string line = refusal("clean 'https://host/run'", 1);
  CHECK(says(line, "https://host/run: no destination is written there, and none is cleaned"));
}

TEST_CASE("the option --within ends every command that reads a checkpoint with status 3, and leaves nothing") {
  const scratch_folder scratch;
  const std::string there = " '" + checkpoint + "' ", to = " '" + (scratch / "out").string() + "' ";
  const std::string meshes = "--from-mesh 2 --from R --to-mesh 2 --to R";
  for (const std::string& command : std::vector<std::string>{
           "inspect" + there, "verify" + there, "diff" + there + there, "convert" + there + to + "--to dcp",
           "reshard" + there + to + "--mesh 2", "plan" + there + meshes, "delta make" + there + there + to}) {
    const auto late = run_tool(command + " --within 0");
    INFO(command << ": " << late.err);
    CHECK(late.status == 3);
    CHECK(late.out.empty());
    CHECK(says(late.err, "deadline has passed"));
    CHECK(says(late.err, "[deadline_exceeded]"));
    CHECK(std::filesystem::is_empty(scratch.path));
    const auto early = run_tool(command + " --within 3600.5");
    CHECK(early.status == 0);
    std::filesystem::remove_all(scratch / "out");
  }
}

TEST_CASE("the option --within refuses values that are no time, and names the option") {
  for (const std::string value : {"-1", "nan", "soon", "''"}) {
    const std::string line = refusal("verify '" + checkpoint + "' --within=" + value, 2);
    CHECK(says(line, "--within"));
  }
}
