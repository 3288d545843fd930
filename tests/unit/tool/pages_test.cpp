// SPDX-License-Identifier: Apache-2.0
// Tests the files of --html pages: where they are written, where not, and that they hold the document of --json.
// tests/pages tests them in a browser.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <run_tool.hpp>
#include <string>

using nlohmann::json;

namespace {

const std::string golden = std::string(SHARDMESH_TEST_DATA) + "/golden/fsdp2_tp_2x2/checkpoint";
const std::string plan_call =
    "plan --shape 4,2 --from-mesh 2 --from 'S(0)' --to-mesh dp=1,tp=2 --to 'R,S(1)' --dtype bfloat16";

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t from = text.find(begin) + begin.size();
  return text.substr(from, text.find(end, from) - from);
}

json document_in(const std::filesystem::path& page) {
  return json::parse(between(read_text(page), R"(<script type="application/json" id="data">)", "</script>"));
}

}  // namespace

TEST_CASE("pages hold the document that --json prints") {
  const scratch_folder folder;
  const auto page = folder / "page.html";
  for (const std::string& call : {"inspect " + golden, plan_call}) {
    INFO(call);
    const auto alone = run_tool(call + " --force --html " + page.string());
    CHECK(alone.status == 0);
    CHECK(alone.out.empty());
    CHECK(alone.err.empty());
    const auto both = run_tool(call + " --json --force --html " + page.string());
    CHECK(both.status == 0);
    CHECK(both.out == run_tool(call + " --json").out);
    CHECK(document_in(page) == json::parse(both.out));
  }
}

TEST_CASE("a plan's document says what moves from where to where, link by link") {
  const json plan = json::parse(run_tool(plan_call + " --json").out);
  CHECK(plan == json::parse(R"j({"shape":[4,2],"dtype":"bfloat16","from":{"mesh":[2],"placements":["S(0)"]},
    "to":{"mesh":[1,2],"placements":["R","S(1)"]},"bytes_total":16,"bytes_moved":8,"lower_bound":8,
    "peak_bytes":{"0":8,"1":8},"links":[{"from":0,"to":1,"bytes":4},{"from":1,"to":0,"bytes":4}],"copies":[
    {"from":0,"to":0,"offsets":[0,0],"sizes":[2,1]},{"from":0,"to":1,"offsets":[0,1],"sizes":[2,1]},
    {"from":1,"to":0,"offsets":[2,0],"sizes":[2,1]},{"from":1,"to":1,"offsets":[2,1],"sizes":[2,1]}]})j"));
}

TEST_CASE("a checkpoint's document has the bytes of tensors and the ranks of files") {
  const json contents = json::parse(run_tool("inspect " + golden + " --json").out);
  CHECK(contents["tensors"]["model.mlp.up.weight"]["bytes"] == 640);
  CHECK(contents["files"] == json::parse(R"({"__0_0.distcp":{"rank":0},"__1_0.distcp":{"rank":1},
    "__2_0.distcp":{"rank":2},"__3_0.distcp":{"rank":3}})"));
}

TEST_CASE("a page that exists is replaced with --force alone") {
  const scratch_folder folder;
  const auto page = folder / "page.html";
  for (const std::string& call : {"inspect " + golden, plan_call}) {
    INFO(call);
    std::ofstream(page) << "mine";
    const auto refused = run_tool(call + " --html " + page.string());
    CHECK(refused.status == 2);
    CHECK(refused.error_lines() == 1);
    CHECK(refused.err.find("pass --force to replace it") != std::string::npos);
    CHECK(read_text(page) == "mine");
    CHECK(run_tool(call + " --force --html " + page.string()).status == 0);
    CHECK(read_text(page).starts_with("<!doctype html>"));
  }
}

TEST_CASE("no page is written into the checkpoint that it shows, nor of what cannot be opened") {
  const scratch_folder folder;
  std::filesystem::copy(golden, folder / "checkpoint", std::filesystem::copy_options::recursive);
  const std::string path = (folder / "checkpoint").string();
  for (const std::string& page :
       {path + "/page.html", path + "/__0_0.distcp", path + "/../checkpoint/.metadata", path}) {
    INFO(page);
    const auto run = run_tool("inspect " + path + " --force --html " + page);
    CHECK(run.status == 2);
    CHECK(run.err.find("--html would write into the checkpoint") != std::string::npos);
  }
  CHECK(run_tool("verify " + path).status == 0);
  const auto page = folder / "page.html";
  CHECK(run_tool("inspect " + (folder / "nothing").string() + " --html " + page.string()).status == 3);
  CHECK(run_tool("inspect " + path + " --only nothing --html " + page.string()).status == 2);
  CHECK(run_tool(plan_call + " --html " + (folder / "no/such/page.html").string()).status == 3);
  std::size_t left = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder / "")) ++left;
  CHECK(left == 1);
}

TEST_CASE("a page's policy names its own style and script, and no name can end an element") {
  const scratch_folder folder;
  const auto page = folder / "page.html", file = folder / "<b>\"&.safetensors";
  const std::string header = R"({"</script><!--":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  std::ofstream(file, std::ios::binary) << std::string(1, static_cast<char>(header.size())) << std::string(7, '\0')
                                        << header << 'x';
  REQUIRE(run_tool("inspect '" + file.string() + "' --html " + page.string()).status == 0);
  const std::string text = read_text(page);
  CHECK(document_in(page)["tensors"].contains("</script><!--"));
  CHECK(between(text, "<title>", "</title>").find("&#60;b&#62;&#34;&#38;.safetensors") != std::string::npos);
  const std::string policy = between(text, "Content-Security-Policy\" content=\"", "\"");
  CHECK(policy.starts_with("default-src 'none'; script-src 'sha256-"));
  CHECK(policy.find("unsafe") == std::string::npos);
}
