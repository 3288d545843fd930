// SPDX-License-Identifier: Apache-2.0
// Runs the commands layout, plan, and check-shards as users do.
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <run_tool.hpp>
#include <string>

using nlohmann::json;

TEST_CASE("layout prints what every rank holds as JSON") {
  const auto run = run_tool("layout --shape 5,2 --mesh dp=4 --place 'S(0)' --json");
  REQUIRE(run.status == 0);
  CHECK(run.err.empty());
  CHECK(json::parse(run.out) == json::parse(R"j({"shape":[5,2],"dtype":"float32","bytes":40,"mesh":[4],
    "mesh_names":["dp"],"placements":["S(0)"],"ranks":[
    {"rank":0,"coordinate":[0],"local_shape":[2,2],"bytes":16,"boxes":[{"offsets":[0,0],"sizes":[2,2]}]},
    {"rank":1,"coordinate":[1],"local_shape":[2,2],"bytes":16,"boxes":[{"offsets":[2,0],"sizes":[2,2]}]},
    {"rank":2,"coordinate":[2],"local_shape":[1,2],"bytes":8,"boxes":[{"offsets":[4,0],"sizes":[1,2]}]},
    {"rank":3,"coordinate":[3],"local_shape":[0,2],"bytes":0,"boxes":[]}]})j"));
}

TEST_CASE("layout knows scalars, negative dimensions, strided shards and other rules") {
  for (const std::string shape : {"[]", "()", "scalar"}) {
    const auto run = run_tool("layout --shape '" + shape + "' --mesh 2 --place R --json");
    REQUIRE(run.status == 0);
    CHECK(json::parse(run.out)["ranks"][1] ==
          json::parse(R"({"rank":1,"coordinate":[1],"local_shape":[],"bytes":4,"boxes":[{"offsets":[],"sizes":[]}]})"));
  }
  const auto strided = json::parse(run_tool("layout --shape 9 --mesh 4 --place 'SS(-1,2)' --json").out);
  CHECK(strided["placements"] == json::parse(R"j(["SS(0,2)"])j"));
  CHECK(strided["ranks"][0]["boxes"] == json::parse(R"([{"offsets":[0],"sizes":[2]},{"offsets":[5],"sizes":[1]}])"));
  const auto balanced = json::parse(run_tool("layout --shape 10 --mesh 4 --place 'S(0)' --rule balanced --json").out);
  CHECK(balanced["ranks"][3]["local_shape"] == json::parse("[2]"));
}

TEST_CASE("layout and plan cut each segment of a fused dimension") {
  const auto run = run_tool("layout --shape 96,2 --mesh tp=8 --place 'SG(-2, 64:16:16)' --json");
  REQUIRE(run.status == 0);
  const json laid = json::parse(run.out);
  CHECK(laid["placements"] == json::parse(R"j(["SG(0,64:16:16)"])j"));
  CHECK(laid["ranks"][3] == json::parse(R"({"rank":3,"coordinate":[3],"local_shape":[12,2],"bytes":96,"boxes":[
    {"offsets":[24,0],"sizes":[8,2]},{"offsets":[70,0],"sizes":[2,2]},{"offsets":[86,0],"sizes":[2,2]}]})"));
  const auto text = run_tool("layout --shape 12 --mesh 2 --place 'SG(0,8:4)'");
  CHECK(text.out.find("rank 1: [6] [4:8) [10:12)") != std::string::npos);
  // Rank 0 has elements 0 to 5, and then 0 to 3, 8, and 9: each rank receives two of its six.
  const json plan =
      json::parse(run_tool("plan --shape 12 --from-mesh 2 --from 'S(0)' --to-mesh 2 --to 'SG(0,8:4)' --json").out);
  CHECK(plan["to"]["placements"] == json::parse(R"j(["SG(0,8:4)"])j"));
  CHECK(plan["bytes_total"] == 48);
  CHECK(plan["bytes_moved"] == 16);
  const auto wrong = run_tool("layout --shape 100,2 --mesh 8 --place 'SG(0,64:16:16)'");
  CHECK(wrong.status == 2);
  CHECK(wrong.err.find("SG(0,64:16:16) do not add up to the size of dimension 0: expected 100, found 96") !=
        std::string::npos);
}

TEST_CASE("layout counts bytes of a dtype, and says null where elements fill no whole number of bytes") {
  const std::string call = "layout --shape 3 --mesh 2 --place R --json --dtype ";
  const json halves = json::parse(run_tool(call + "bfloat16").out);
  CHECK(halves["dtype"] == "bfloat16");
  CHECK(halves["bytes"] == 6);
  CHECK(halves["mesh_names"].empty());
  const json nibbles = json::parse(run_tool(call + "float4_e2m1fn").out);
  CHECK(nibbles["bytes"].is_null());
  CHECK(nibbles["ranks"][1]["bytes"].is_null());
  const auto wrong = run_tool(call + "float99");
  CHECK(wrong.status == 2);
  CHECK(wrong.err.find("'float99' is not a dtype") != std::string::npos);
}

TEST_CASE("layout draws, and a million ranks are no trouble") {
  const auto text = run_tool("layout --shape 10,7 --mesh 2,3 --place 'S(0),S(1)'");
  CHECK(text.status == 0);
  CHECK(text.out.find("|      3      |") != std::string::npos);
  CHECK(text.out.find('\x1b') == std::string::npos);
  const auto many = run_tool("layout --shape 8192,8192 --mesh 1024,1024 --place 'S(0),S(1)'");
  CHECK(many.status == 0);
  CHECK(many.out.find("and 1048512 more ranks") != std::string::npos);
}

TEST_CASE("wrong usage is status 2 and says what is wrong") {
  for (const std::string arguments :
       {"layout --shape 10 --mesh 0 --place R", "layout --shape 10 --mesh 2 --place 'S(1)'",
        "layout --shape 10 --mesh 2 --place 'S(0),R'", "layout --shape -1 --mesh 2 --place R",
        "layout --shape 10 --mesh 2 --place Q", "layout --shape 10 --mesh dp=2,dp=2 --place R,R",
        "plan --shape 4 --from-mesh 2 --from R --to-mesh 2 --to R --dtype float99",
        "plan --shape 4 --from-mesh 2 --from 'P(sum),R' --to-mesh 2 --to R"}) {
    const auto run = run_tool(arguments);
    INFO(arguments);
    CHECK(run.status == 2);
    CHECK(run.error_lines() == 1);
    CHECK(run.out.empty());
  }
  CHECK(run_tool("layout --shape 10").status == 2);
  CHECK(run_tool("no-such-command").status == 2);
  CHECK(run_tool("").status == 2);
  CHECK(run_tool("layout --help").status == 0);
  CHECK(run_tool("--version").status == 0);
}

TEST_CASE("plan prints bytes and copies as JSON") {
  const auto run =
      run_tool("plan --shape 4,2 --from-mesh 2 --from 'S(0)' --to-mesh 2 --to 'S(1)' --dtype bfloat16 --json");
  REQUIRE(run.status == 0);
  const json plan = json::parse(run.out);
  CHECK(plan["bytes_total"] == 16);
  CHECK(plan["bytes_moved"] == 8);
  CHECK(plan["lower_bound"] == 8);
  CHECK(plan["peak_bytes"].size() == 2);
  CHECK(plan["copies"].size() == 4);
  CHECK(plan["copies"][1] == json::parse(R"({"from":0,"to":1,"offsets":[0,1],"sizes":[2,1]})"));
}

TEST_CASE("pictures are written to files, or it is status 3") {
  const scratch_folder folder;
  const auto svg = folder / "layout.svg";
  CHECK(run_tool("layout --shape 4,4 --mesh 2,2 --place 'S(0),S(1)' --svg " + svg.string()).status == 0);
  CHECK(read_text(svg).find("</svg>") != std::string::npos);
  CHECK(read_text(svg).find(">mesh dimension 1 (2 ranks): S(1)</text>") != std::string::npos);
  const auto plan = folder / "plan.svg";
  CHECK(run_tool("plan --shape 4 --from-mesh 2 --from 'S(0)' --to-mesh tp=2 --to R --svg " + plan.string()).status ==
        0);
  CHECK(read_text(plan).find(">from mesh dimension 0 (2 ranks): S(0)</text>") != std::string::npos);
  CHECK(read_text(plan).find(">to tp (2 ranks): R</text>") != std::string::npos);
  const auto denied = run_tool("layout --shape 4 --mesh 2 --place R --svg " + (folder / "no/such/folder.svg").string());
  CHECK(denied.status == 3);
  CHECK(denied.error_lines() == 1);
}

namespace {
tool_output check(const std::string& document, const std::string& options = "") {
  const scratch_folder folder;
  const auto file = folder / "shards.json";
  std::ofstream(file) << document;
  return run_tool("check-shards " + file.string() + " " + options);
}
}  // namespace

TEST_CASE("check-shards accepts a valid cover, with empty shards and copies of a scalar") {
  const auto run = check(
      R"({"shards":[{"offsets":[0,0],"sizes":[2,3],"placement":"rank:0/cpu"},{"offsets":[2,0],"sizes":[2,3],"placement":null},
    {"offsets":[4,0],"sizes":[0,3]},{"offsets":[1,0],"sizes":[0,3]},{"offsets":[4,0],"sizes":[0,3]}],"size":[4,3]})",
      "--json");
  CHECK(run.status == 0);
  CHECK(run.err.empty());
  CHECK(json::parse(run.out)["ok"] == true);
  CHECK(check(R"({"size":[],"shards":[{"offsets":[],"sizes":[]}]})").status == 0);
  CHECK(check(R"({"size":[],"shards":[{"offsets":[],"sizes":[]},{"offsets":[],"sizes":[]}]})").status == 0);
  CHECK(check(R"({"size":[0,4],"shards":[]})").status == 0);
}

TEST_CASE("check-shards takes the same shard on two ranks for an overlap, as PyTorch does") {
  const auto run = check(R"({"size":[4],"shards":[{"offsets":[0],"sizes":[2],"placement":"rank:0/cpu"},
    {"offsets":[2],"sizes":[2],"placement":"rank:1/cpu"},{"offsets":[2],"sizes":[2],"placement":"rank:3/cpu"}]})");
  CHECK(run.status == 1);
  CHECK(run.err == "shards 1 and 2 (ranks 1 and 3) overlap in [2:4) [overlap]\n");
}

TEST_CASE("check-shards names overlaps, gaps and what extends beyond the tensor, one line each") {
  const auto run = check(R"({"size":[7,8],"shards":[{"offsets":[0,0],"sizes":[2,8],"placement":"rank:0/cpu"},
    {"offsets":[2,0],"sizes":[4,8],"placement":"rank:2/cpu"},{"offsets":[4,0],"sizes":[2,8],"placement":"rank:5/cpu"}]})",
                         "--json");
  CHECK(run.status == 1);
  CHECK(run.err ==
        "shards 1 and 2 (ranks 2 and 5) overlap in [4:6, 0:8) [overlap]\n[6:7, 0:8) is held by no shard [gap]\n");
  CHECK(json::parse(run.out) == json::parse(R"j({"ok":false,"size":[7,8],"shards":3,"problems":[
    {"code":"overlap","kind":"overlap","shards":[1,2],"offsets":[4,0],"sizes":[2,8],
     "message":"shards 1 and 2 (ranks 2 and 5) overlap in [4:6, 0:8)",
     "text":"shards 1 and 2 (ranks 2 and 5) overlap in [4:6, 0:8) [overlap]"},
    {"code":"gap","kind":"gap","shards":[],"offsets":[6,0],"sizes":[1,8],
     "message":"[6:7, 0:8) is held by no shard","text":"[6:7, 0:8) is held by no shard [gap]"}],"more_problems":0,"total":2,
     "total_is_exact":true})j"));
  const auto beyond = check(R"({"size":[5],"shards":[{"offsets":[0],"sizes":[4]},{"offsets":[4],"sizes":[2]}]})");
  CHECK(beyond.status == 1);
  CHECK(beyond.err == "shard 1 extends beyond the tensor [5] with [4:6) [out_of_bounds]\n");
}

TEST_CASE("check-shards names malformed shards by their index") {
  const auto run =
      check(R"({"size":[5],"shards":[{"offsets":[-1],"sizes":[1]},{"offsets":[0,0],"sizes":[1]},{"sizes":[1]},7,
    {"offsets":[0.5],"sizes":[1]},{"offsets":[9223372036854775808],"sizes":[1]},{"offsets":[0],"sizes":[5],"placement":"rank:x/cpu"},
    {"offsets":[0],"sizes":[5]}]})",
            "--json");
  CHECK(run.status == 1);
  CHECK(run.error_lines() == 7);
  for (const char* index : {"shard 0", "shard 1", "shard 2", "shard 3", "shard 4", "shard 5", "shard 6"})
    CHECK(run.err.find(index) != std::string::npos);
  const json document = json::parse(run.out);
  CHECK(document["total"] == 7);
  CHECK(document["more_problems"] == 0);
  CHECK(document["size"] == json::array());
  CHECK(document["shards"] == 0);
  REQUIRE(document["problems"].size() == 7);
  std::string lines;
  for (const json& one : document["problems"]) {
    CHECK(one["code"] == "bad_format");
    CHECK(one["kind"] == "malformed");
    CHECK(one["text"] == one["message"].get<std::string>() + " [bad_format]");
    lines += one["text"].get<std::string>() + "\n";
  }
  CHECK(run.err == lines);
  for (const char* document : {"", "{", "[]", R"({"size":[5]})", R"({"shards":[]})", R"({"size":5,"shards":[]})",
                               R"({"size":[4611686018427387904,4],"shards":[]})"}) {
    INFO(document);
    const auto bad = check(document);
    CHECK(bad.status == 1);
    CHECK(bad.error_lines() == 1);
  }
  CHECK(check(R"({"size":[5],"shards":[{"offsets":[9223372036854775807],"sizes":[9223372036854775807]}]})").status ==
        1);
}

TEST_CASE("check-shards cannot complete without its file") {
  const auto run = run_tool("check-shards /nonexistent/shards.json --json");
  CHECK(run.status == 3);
  CHECK(run.error_lines() == 1);
  CHECK(json::parse(run.out)["ok"] == false);
  CHECK(run_tool("check-shards /nonexistent/shards.json").out.empty());
}

TEST_CASE("check-shards names the first problems and counts the rest") {
  std::string shards;
  for (int i = 0; i < 300; ++i)
    shards += std::string(i == 0 ? "" : ",") + R"({"offsets":[)" + std::to_string(2 * i) + R"(],"sizes":[1]})";
  const auto run = check(R"({"size":[600],"shards":[)" + shards + "]}");
  CHECK(run.status == 1);
  CHECK(run.error_lines() == 101);
  CHECK(run.err.find("and 200 more problems") != std::string::npos);
}
