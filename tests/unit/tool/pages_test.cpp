// SPDX-License-Identifier: Apache-2.0
// Tests the files of --html pages: where they are written, where not, and that they hold the document of --json.
// tests/pages tests them in a browser.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <run_tool.hpp>
#include <string>
#include <vector>

using nlohmann::json;

namespace {

const std::string golden = std::string(SHARDMESH_TEST_DATA) + "/golden/fsdp2_tp_2x2/checkpoint";
const std::string plan_call =
    "plan --shape 4,2 --from-mesh 2 --from 'S(0)' --to-mesh dp=1,tp=2 --to 'R,S(1)' --dtype bfloat16";
const std::vector<std::string> calls{"inspect " + golden, "diff " + golden + " " + golden, plan_call,
                                     "layout --shape 10,7 --mesh dp=2,tp=3 --place 'S(0),S(1)'"};

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t from = text.find(begin) + begin.size();
  return text.substr(from, text.find(end, from) - from);
}

json document_in(const std::filesystem::path& page) {
  return json::parse(between(read_text(page), R"(<script type="application/json" id="data">)", "</script>"));
}

// A safetensors file with one byte for each key.
void write_safetensors(const std::filesystem::path& path, const std::vector<std::string>& keys, char value) {
  json header = json::object();
  for (std::size_t i = 0; i < keys.size(); ++i)
    header[keys[i]] = {{"dtype", "U8"}, {"shape", json::array({1})}, {"data_offsets", json::array({i, i + 1})}};
  const std::string text = header.dump();
  const std::uint64_t size = text.size();
  std::ofstream(path, std::ios::binary) << std::string(reinterpret_cast<const char*>(&size), 8) << text
                                        << std::string(keys.size(), value);
}

}  // namespace

TEST_CASE("pages hold the document that --json prints") {
  const scratch_folder folder;
  const auto page = folder / "page.html";
  for (const std::string& call : calls) {
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
  CHECK(plan == json::parse(R"j({"shape":[4,2],"dtype":"bfloat16","from":{"mesh":[2],"mesh_names":[],
    "placements":["S(0)"]},"to":{"mesh":[1,2],"mesh_names":["dp","tp"],"placements":["R","S(1)"]},
    "bytes_total":16,"bytes_moved":8,"lower_bound":8,
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

TEST_CASE("a document of differences names both sides and counts the kinds") {
  const scratch_folder folder;
  const std::string left = (folder / "left.safetensors").string(), right = (folder / "right.safetensors").string();
  write_safetensors(left, {"a", "b", "gone"}, 'x');
  write_safetensors(right, {"a", "b", "new"}, 'y');
  const auto run = run_tool("diff " + left + " " + right + " --json");
  CHECK(run.status == 1);
  const json document = json::parse(run.out);
  CHECK(document["left"] == left);
  CHECK(document["right"] == right);
  CHECK(document["equal"] == false);
  CHECK(document["differing_keys"] == 4);
  CHECK(document["kinds"] == json::parse(R"({"only-left":1,"only-right":1,"values":2})"));
  CHECK(document["differences"][0]["key"] == "a");
  CHECK(document["differences"][0]["different"] == 1);
  CHECK(document["differences"][0]["largest_difference"] == "1");
}

TEST_CASE("the page of a comparison lists a hundred thousand differences or --limit, and counts the rest") {
  const scratch_folder folder;
  const std::string left = (folder / "left.safetensors").string(), right = (folder / "right.safetensors").string();
  const auto page = folder / "page.html";
  std::vector<std::string> keys;
  for (int i = 0; i < 100'050; ++i) keys.push_back("model.layers." + std::to_string(i));
  write_safetensors(left, keys, 'x');
  write_safetensors(right, {"another"}, 'x');
  const std::string call = "diff " + left + " " + right + " --force --html " + page.string();
  const auto document_of = [&](const std::string& options) {
    const auto run = run_tool(call + options);
    CHECK(run.status == 1);
    CHECK(run.out.empty());
    json document = document_in(page);
    CHECK(document["differing_keys"] == 100'051);
    CHECK(document["kinds"] == json::parse(R"({"only-left":100050,"only-right":1})"));
    return document;
  };
  const json whole = document_of("");
  CHECK(whole["differences"].size() == 100'000);
  CHECK(whole["more_differences"] == 51);
  const json first = document_of(" --limit 2");
  CHECK(first["differences"].size() == 2);
  CHECK(first["more_differences"] == 100'049);
  CHECK(document_of(" --limit 0")["differences"].size() == 100'051);
}

TEST_CASE("the page of a layout lists 65536 ranks or boxes and counts the rest, which --json lists") {
  const scratch_folder folder;
  const auto page = folder / "page.html";
  const std::string ranks = "layout --shape 100000,8 --mesh 100000 --place 'S(0)'";
  REQUIRE(run_tool(ranks + " --html " + page.string()).status == 0);
  const json many_ranks = document_in(page);
  CHECK(many_ranks["ranks"].size() == 65'536);
  CHECK(many_ranks["more_ranks"] == 34'464);
  const json all_ranks = json::parse(run_tool(ranks + " --json").out);
  CHECK(all_ranks["ranks"].size() == 100'000);
  CHECK_FALSE(all_ranks.contains("more_ranks"));
  // Each rank holds every second element.
  REQUIRE(run_tool("layout --shape 200000 --mesh 2 --place 'SS(0,100000)' --force --html " + page.string()).status ==
          0);
  const json many_boxes = document_in(page);
  REQUIRE(many_boxes["ranks"].size() == 1);
  CHECK(many_boxes["ranks"][0]["boxes"].size() == 65'536);
  CHECK(many_boxes["ranks"][0]["more_boxes"] == 34'464);
  CHECK(many_boxes["more_ranks"] == 1);
}

TEST_CASE("a page that exists is replaced with --force alone") {
  const scratch_folder folder;
  const auto page = folder / "page.html";
  for (const std::string& call : calls) {
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
    for (const std::string& sides : {path + " " + golden, golden + " " + path}) {
      const auto compared = run_tool("diff " + sides + " --force --html " + page);
      CHECK(compared.status == 2);
      CHECK(compared.err.find("--html would write into the checkpoint") != std::string::npos);
    }
  }
  CHECK(run_tool("verify " + path).status == 0);
  const auto page = folder / "page.html";
  CHECK(run_tool("inspect " + (folder / "nothing").string() + " --html " + page.string()).status == 3);
  CHECK(run_tool("inspect " + path + " --only nothing --html " + page.string()).status == 2);
  CHECK(run_tool("diff " + path + " " + (folder / "nothing").string() + " --html " + page.string()).status == 3);
  CHECK(run_tool("layout --shape 4 --mesh 2 --place 'S(1)' --html " + page.string()).status == 2);
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

TEST_CASE("no key, file, or mesh dimension can end an element of the pages of diff and layout") {
  const scratch_folder folder;
  const auto page = folder / "page.html", left = folder / "<b>.safetensors", right = folder / "right.safetensors";
  write_safetensors(left, {"</script><!--"}, 'x');
  write_safetensors(right, {"a"}, 'x');
  const std::string call = "diff '" + left.string() + "' " + right.string() + " --html " + page.string();
  REQUIRE(run_tool(call).status == 1);
  CHECK(document_in(page)["differences"][0]["key"] == "</script><!--");
  CHECK(read_text(page).find("</script><!--") == std::string::npos);
  CHECK(read_text(page).find("<b>.safetensors") == std::string::npos);
  const std::string name = "</script><img src=x>";
  REQUIRE(run_tool("layout --shape 4 --mesh '" + name + "=2' --place R --force --html " + page.string()).status == 0);
  CHECK(document_in(page)["mesh_names"][0] == name);
  CHECK(read_text(page).find(name) == std::string::npos);
}
