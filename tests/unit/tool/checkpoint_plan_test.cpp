// SPDX-License-Identifier: Apache-2.0
// Runs `plan CKPT` as users do: the move of all tensors of a checkpoint between two meshes, under the same names or
// other ones, and of folders whose ranks saved different values. The expected bytes are counted by hand.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <run_tool.hpp>
#include <scratch_folder.hpp>
#include <string>
#include <utility>
#include <vector>

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

// A folder that two ranks saved without collectives. In the description of rank 1, the sizes [5, 3] and [4, 2] are
// [3, 5] and [2, 4]: those of "plain", "model.rep", and "opt.state.rep.exp_avg".
struct folder_of_ranks {
  scratch_folder scratch;
  std::filesystem::path path = scratch / "ranks";

  explicit folder_of_ranks(bool disagrees) {
    std::filesystem::copy(SHARDMESH_TEST_DATA "/golden/options_no_collectives/checkpoint", path);
    if (!disagrees) return;
    std::string description = read_text(path / "__1.metadata");
    for (std::size_t at = 0; at + 3 < description.size(); ++at) {
      const std::string sizes = description.substr(at, 4);
      if (sizes == "K\x05K\x03" || sizes == "K\x04K\x02") std::swap(description[at + 1], description[at + 3]);
    }
    std::ofstream(path / "__1.metadata", std::ios::binary) << description;
  }
  std::string call(const std::string& more = "") const {
    return "plan " + path.string() + " --from-mesh 3 --from R --from-place 'plain.*=S(0)' --to-mesh 3 --to R " + more;
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
    "notes":["mapped from parts to fused: 0 tensors renamed, 1 computed"],"ok":true,"problems":[],"more_problems":0,"warnings":[],
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
  refused("plan --shape 4 --rank 0" + meshes, "--rank is for the plan of a checkpoint");
  refused("plan --shape 4 --keys-at-ranks" + meshes, "--keys-at-ranks is for the plan of a checkpoint");
  refused("plan " + all.checkpoint + " --dtype int8" + meshes, "--dtype is for the plan of one tensor");
  refused("plan " + all.checkpoint + " --html " + (all.folder / "p.html").string() + meshes,
          "--html is for the plan of one tensor");
  refused(all.call("R", "--to-place 'nothing=R'"), "rule 'nothing' matches no tensor");
  refused(all.call("S(3)"), " lack");
  refused(all.call("S(0)", "--map " + all.mapping + " --size x=1"), "no rule of the mapping uses a given size");
  refused("plan " + (all.folder / "none").string() + meshes, "none", 3);
}

TEST_CASE("plan refuses entries of which the ranks saved different values, and names each") {
  const folder_of_ranks ranks(true);
  const auto line = [&](const std::string& key, const std::string& expected, const std::string& found) {
    return ranks.path.string() + ": " + key +
           ": the ranks saved different entries under this key (ranks 0, 1): " + "expected " + expected + ", found " +
           found +
           "; read it as one of these ranks (--rank N, rank=N), or list it as KEY@RANK of each rank (--keys-at-ranks, "
           "keys_at_ranks=True) [disagreement]\n";
  };
  const std::string lines = line("model.rep", "float32 [4, 2]", "float32 [2, 4]") +
                            line("opt.state.rep.exp_avg", "float32 [4, 2]", "float32 [2, 4]") +
                            line("plain", "int64 [5, 3]", "int64 [3, 5]");
  const auto plain = run_tool(ranks.call());
  CHECK(plain.status == 1);
  CHECK(plain.out.empty());
  CHECK(plain.err == lines);
  const auto run = run_tool(ranks.call("--json"));
  CHECK(run.status == 1);
  CHECK(run.err == lines);
  const json document = json::parse(run.out);
  CHECK(document["ok"] == false);
  REQUIRE(document["problems"].size() == 3);
  CHECK(document["problems"][2]["key"] == "plain");
  CHECK(document["problems"][2]["code"] == "disagreement");
  CHECK(document["problems"][2]["ranks"] == json::array({0, 1}));
}

TEST_CASE("with --rank, plan takes the values of that rank, and with --keys-at-ranks those of each") {
  const folder_of_ranks ranks(true);
  const auto held = [&](const std::string& options) {
    const auto run = run_tool(ranks.call(options + " --json"));
    INFO(options << run.err);
    REQUIRE(run.status == 0);
    CHECK(run.err.find("disagreement") == std::string::npos);
    const json document = json::parse(run.out);
    std::vector<int> bytes{document["tensors_before"].get<int>()};
    for (const json& rank : document["ranks"]) bytes.push_back(rank["bytes_before"].get<int>());
    return bytes;
  };
  // Nine float32 tensors have 388 bytes, which each rank holds. Of the five rows of "plain" (24 bytes each), the ranks
  // hold two, two, and one; of its three rows (40 bytes each), one each.
  CHECK(held("--rank 0") == std::vector<int>{10, 436, 436, 412});
  CHECK(held("--rank 1") == std::vector<int>{10, 428, 428, 428});
  // Two more tensors of 32 bytes, and both forms of "plain".
  CHECK(held("--keys-at-ranks") == std::vector<int>{13, 540, 540, 516});
  const auto both = run_tool(ranks.call("--rank 0 --keys-at-ranks"));
  CHECK(both.status == 2);
  CHECK(both.err.find("--rank cannot be used with --keys-at-ranks") != std::string::npos);
}

TEST_CASE("plan prints the warnings of a checkpoint whose ranks agree, and lists them in its document") {
  const folder_of_ranks ranks(false);
  std::ofstream(ranks.path / "__01.metadata") << "no metadata";
  const std::string file = (ranks.path / "__01.metadata").string();
  const std::string line = file + ": is not used: its name is not that of a rank's metadata [incomplete_save]";
  const auto plain = run_tool(ranks.call());
  CHECK(plain.status == 0);
  CHECK(plain.out.starts_with("10 tensors become 10: "));
  CHECK(plain.err == "warning: " + line + "\nnote: 3 objects not in the plan: only tensors move\n");
  const auto run = run_tool(ranks.call("--json"));
  CHECK(run.status == 0);
  CHECK(run.err == "warning: " + line + "\n");
  const json document = json::parse(run.out);
  CHECK(document["ok"] == true);
  CHECK(document["problems"].empty());
  REQUIRE(document["warnings"].size() == 1);
  CHECK(document["warnings"][0]["file"] == file);
  CHECK(document["warnings"][0]["text"] == line);
}

TEST_CASE("plan shows what is readable of a damaged checkpoint, and its problems decide the exit status") {
  const folder_of_ranks ranks(false);
  std::filesystem::resize_file(ranks.path / "__0_0.distcp", 3000);
  const std::string place = (ranks.path / "__0_0.distcp").string() + ": model.rep: ";
  for (const char* const options : {"", "--json"}) {
    const auto run = run_tool(ranks.call(options));
    INFO(run.err);
    CHECK(run.status == 1);
    CHECK(run.err.starts_with(place + "an item lies outside of its file"));
    CHECK(run.out.find("10") != std::string::npos);
  }
  const json document = json::parse(run_tool(ranks.call("--json")).out);
  CHECK(document["ok"] == false);
  CHECK(document["tensors_before"] == 10);
  CHECK(document["problems"][0]["code"] == "out_of_bounds");
}
