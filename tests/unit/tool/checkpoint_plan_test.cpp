// SPDX-License-Identifier: Apache-2.0
// Runs `plan CKPT` as users do: the move of all tensors of a checkpoint between two meshes, under the same names or
// other ones. The expected bytes are counted by hand.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <run_tool.hpp>
#include <string>

using nlohmann::json;

namespace {

// A safetensors file of q, k, and v, with zeros.
void write_checkpoint(const std::filesystem::path& path) {
  const std::string header =
      R"({"k":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"q":{"dtype":"F32","shape":[4,2],"data_offsets":)"
      R"([16,48]},"v":{"dtype":"F32","shape":[2,2],"data_offsets":[48,64]}})";
  std::ofstream file(path, std::ios::binary);
  const std::uint64_t size = header.size();
  for (int byte = 0; byte < 8; ++byte) file.put(static_cast<char>((size >> (8 * byte)) & 0xff));
  file << header << std::string(64, '\0');
}

// A mapping by groups: rows q0 q1 k0 v0, then q2 q3 k1 v1.
void write_mapping(const std::filesystem::path& path) {
  std::ofstream(path) << "left = 'parts'\nright = 'fused'\n[sizes]\ng = 2\nr = 2\n[[rule]]\nleft.q = 'q'\n"
                         "left.k = 'k'\nleft.v = 'v'\nright = 'qkv'\n"
                         "index = 'q: (g r) h, k: g h, v: g h -> qkv: (g [q:r | k | v]) h'\n";
}

struct files {
  scratch_folder folder;
  std::string checkpoint = (folder / "parts.safetensors").string(), mapping = (folder / "fused.toml").string();
  files() {
    write_checkpoint(checkpoint);
    write_mapping(mapping);
  }
  // The command, from two ranks with rows to two ranks.
  std::string call(const std::string& to, const std::string& more = "") const {
    return "plan " + checkpoint + " --from-mesh 2 --from 'S(0)' --to-mesh tp=2 --to '" + to + "' " + more;
  }
};

// The document without the bytes of messages, which the planner is free to choose.
json without_peaks(json document) {
  for (json& rank : document.at("ranks")) CHECK(rank.erase("peak_bytes") == 1);
  return document;
}

}  // namespace

TEST_CASE("plan counts the bytes of a mapped move on each rank and between each pair") {
  const files all;
  const auto run = run_tool(all.call("S(1)", "--map " + all.mapping + " --json"));
  INFO(run.err);
  REQUIRE(run.status == 0);
  // Each rank has four of the eight rows, and wants one of the two columns: it receives four elements of 4 bytes.
  json expected = json::parse(R"j({"checkpoint":"","map":"",
    "from":{"mesh":[2],"mesh_names":[],"placements":["S(0)"],"rules":[]},
    "to":{"mesh":[2],"mesh_names":["tp"],"placements":["S(1)"],"rules":[]},
    "tensors_before":3,"tensors_after":1,"moves":3,"bytes_total":64,"bytes_moved":32,"lower_bound":32,
    "notes":["mapped from parts to fused: 0 tensors renamed, 1 computed"],
    "ranks":[{"rank":0,"bytes_before":32,"bytes_after":32,"sent_bytes":16,"received_bytes":16},
             {"rank":1,"bytes_before":32,"bytes_after":32,"sent_bytes":16,"received_bytes":16}],
    "links":[{"from":0,"to":1,"bytes":16},{"from":1,"to":0,"bytes":16}]})j");
  expected["checkpoint"] = all.checkpoint;
  expected["map"] = all.mapping;
  CHECK(without_peaks(json::parse(run.out)) == expected);
  // In rows, each rank has its group already.
  const json rows = json::parse(run_tool(all.call("S(0)", "--map " + all.mapping + " --json")).out);
  CHECK(rows["bytes_moved"] == 0);
  CHECK(rows["links"] == json::array());
}

TEST_CASE("plan prints a line for each rank, and draws the traffic") {
  const files all;
  const auto run = run_tool(all.call("S(1)", "--map " + all.mapping));
  CHECK(run.status == 0);
  CHECK(run.err == "note: mapped from parts to fused: 0 tensors renamed, 1 computed\n");
  CHECK(run.out.starts_with(
      "3 tensors become 1: 32 bytes move between ranks (at least 32 bytes), 64 bytes in all; at most "));
  CHECK(run.out.find("   rank      before       after       sends    receives    messages\n"
                     "      0    32 bytes    32 bytes    16 bytes    16 bytes ") != std::string::npos);
  CHECK(run.out.find("from\\to") != std::string::npos);
  const auto picture = all.folder / "plan.svg";
  CHECK(run_tool(all.call("S(1)", "--map " + all.mapping + " --svg " + picture.string())).status == 0);
  CHECK(read_text(picture).find(">32 bytes move, at least 32 bytes</text>") != std::string::npos);
  CHECK(read_text(picture).find(">to tp (2 ranks): S(1)</text>") != std::string::npos);
}

TEST_CASE("without a mapping, plan moves the tensors under their names, and rules place single ones") {
  const files all;
  const json plan = json::parse(run_tool(all.call("S(0)", "--from-place 'k=R' --to-place 'q=R' --json")).out);
  // Only the half of q that each rank lacks moves: two rows of 8 bytes.
  CHECK(plan["bytes_moved"] == 32);
  CHECK(plan["map"] == "");
  CHECK(plan["tensors_after"] == 3);
  CHECK(plan["from"]["rules"] == json::parse(R"([{"pattern":"k","placements":["R"]}])"));
  CHECK(plan["ranks"][0]["bytes_before"] == 16 + 16 + 8);
  CHECK(plan["ranks"][1]["bytes_after"] == 8 + 32 + 8);
}

TEST_CASE("plan refuses options of the other form, rules that match nothing, and placements that do not fit") {
  const files all;
  const std::string meshes = " --from-mesh 2 --from 'S(0)' --to-mesh 2 --to R ";
  const auto refused = [](const std::string& call, const std::string& words, int status = 2) {
    INFO(call);
    const auto run = run_tool(call);
    INFO(run.err);
    CHECK(run.status == status);
    CHECK(run.out.empty());
    CHECK(run.err.find(words) != std::string::npos);
  };
  refused("plan" + meshes, "pass either --shape or the checkpoint CKPT");
  refused("plan " + all.checkpoint + " --shape 4" + meshes, "pass either --shape or the checkpoint CKPT");
  refused("plan --shape 4 --to-place 'a=R'" + meshes, "--to-place is for the plan of a checkpoint");
  refused("plan --shape 4 --map " + all.mapping + meshes, "--map is for the plan of a checkpoint");
  refused("plan " + all.checkpoint + " --dtype int8" + meshes, "--dtype is for the plan of one tensor");
  refused("plan " + all.checkpoint + " --html " + (all.folder / "p.html").string() + meshes,
          "--html is for the plan of one tensor");
  refused(all.call("R", "--to-place 'nothing=R'"), "rule 'nothing' matches no tensor");
  refused(all.call("S(3)"), " lack");
  refused(all.call("S(0)", "--map " + all.mapping + " --size x=1"), "no rule of the mapping uses a given size");
  refused("plan " + (all.folder / "none").string() + meshes, "none", 3);
}
