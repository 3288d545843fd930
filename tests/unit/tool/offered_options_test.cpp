// SPDX-License-Identifier: Apache-2.0
// Tests that no command offers an option that it lacks, on a folder whose ranks saved different values.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <run_tool.hpp>
#include <scratch_folder.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;

const std::string as_rank =
    "read it as one of these ranks (--rank N, rank=N), or list it as KEY@RANK of each rank "
    "(--keys-at-ranks, keys_at_ranks=True)";
const std::string as_copy = "convert the checkpoint with --rank N or --keys-at-ranks first, and pass the result";

// A run with one step, which two ranks saved without collectives. In the description of rank 1, the sizes [5, 3] and
// [4, 2] are [3, 5] and [2, 4]: those of "plain", "model.rep", and "opt.state.rep.exp_avg".
struct disputed_run {
  scratch_folder scratch;
  fs::path folder = scratch / "run", step = folder / "step-1";

  disputed_run() {
    fs::create_directories(folder);
    fs::copy(SHARDMESH_TEST_DATA "/golden/options_no_collectives/checkpoint", step);
    std::string description = read_text(step / "__1.metadata");
    for (std::size_t at = 0; at + 3 < description.size(); ++at) {
      const std::string sizes = description.substr(at, 4);
      if (sizes == "K\x05K\x03" || sizes == "K\x04K\x02") std::swap(description[at + 1], description[at + 3]);
    }
    std::ofstream(step / "__1.metadata", std::ios::binary) << description;
  }
  std::string line(const std::string& key, const std::string& sizes, const std::string& hint) const {
    return step.string() + ": " + key + ": the ranks saved different entries under this key (ranks 0, 1): " + sizes +
           "; " + hint + " [disagreement]\n";
  }
  // The lines about the three keys, in the order of the catalog.
  std::string lines(const std::string& hint) const {
    return line("model.rep", "expected float32 [4, 2], found float32 [2, 4]", hint) +
           line("opt.state.rep.exp_avg", "expected float32 [4, 2], found float32 [2, 4]", hint) +
           line("plain", "expected int64 [5, 3], found int64 [3, 5]", hint);
  }
};

std::vector<std::string> sorted_lines(const std::string& text) {
  std::istringstream lines(text);
  std::set<std::string> sorted;
  for (std::string line; std::getline(lines, line);) sorted.insert(line);
  return {sorted.begin(), sorted.end()};
}

std::set<std::string> options_in(const std::string& text) {
  std::set<std::string> found;
  for (std::size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at)) {
    const std::size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", at);
    found.insert(text.substr(at, end == std::string::npos ? end : end - at));
    at = end;
  }
  return found;
}

}  // namespace

TEST_CASE("run resume-plan refuses entries of which the ranks saved different values, and names each") {
  const disputed_run made;
  for (const char* const how : {"", " --json"}) {
    const tool_output run = run_tool("run resume-plan " + made.folder.string() + " --mesh 2" + how);
    CHECK(run.status == 1);
    CHECK(run.err == made.lines(as_copy));
    if (*how == '\0') {
      CHECK(run.out.empty());
      continue;
    }
    const auto document = nlohmann::json::parse(run.out);
    CHECK(document["ok"] == false);
    CHECK(document["problems"].size() == 3);
    CHECK(document["problems"][0]["hint"] == as_copy);
    CHECK(document["warnings"].empty());
  }
}

TEST_CASE("run resume-plan prints the warnings of the step, and lists them in its document") {
  const scratch_folder scratch;
  const fs::path step = scratch / "run" / "step-1";
  fs::create_directories(step.parent_path());
  fs::copy(SHARDMESH_TEST_DATA "/golden/options_no_collectives/checkpoint", step);
  std::ofstream(step / "__01.metadata") << "no metadata";
  const std::string line =
      (step / "__01.metadata").string() + ": is not used: its name is not that of a rank's metadata [incomplete_save]";
  const std::string call = "run resume-plan " + (scratch / "run").string() + " --mesh 2 --default R";
  const tool_output plain = run_tool(call);
  CHECK(plain.status == 0);
  CHECK(plain.err == "warning: " + line + "\nnote: 3 objects not in the plan: only tensors are cut\n");
  const tool_output run = run_tool(call + " --json");
  CHECK(run.status == 0);
  const auto document = nlohmann::json::parse(run.out);
  CHECK(document["ok"] == true);
  CHECK(document["problems"].empty());
  REQUIRE(document["warnings"].size() == 1);
  CHECK(document["warnings"][0]["text"] == line);
}

TEST_CASE("a rule that matches nothing is refused with --allow-unused only by a command that has this option") {
  const disputed_run made;
  const std::string step = (made.scratch / "plain").string();
  fs::copy(SHARDMESH_TEST_DATA "/golden/single_rank/checkpoint", step);
  const fs::path runs = made.scratch / "runs";
  fs::create_directories(runs);
  fs::copy(step, runs / "step-1");
  CHECK(run_tool("run resume-plan " + runs.string() + " --mesh 2 --place 'W=R'").err ==
        "rule 'W' matches no tensor; patterns match whole keys [invalid_argument]\n");
  const std::string meshes = " --from-mesh 2 --from R --to-mesh 2 --to R";
  CHECK(run_tool("plan " + step + meshes + " --to-place 'nothing=R'").err ==
        "rule 'nothing' matches no tensor; patterns match whole keys [invalid_argument]\n");
  const std::string out = (made.scratch / "out").string();
  const tool_output resharded = run_tool("reshard " + step + " " + out + " --mesh 2 --place 'nothing=R'");
  CHECK(resharded.err.find("patterns match whole keys; pass --allow-unused to ignore this") != std::string::npos);
}

TEST_CASE("no command offers an option that it lacks") {
  const disputed_run made;
  const std::string step = made.step.string(), out = (made.scratch / "out").string();
  const std::vector<std::pair<std::string, std::string>> calls{
      {"inspect", step},
      {"verify", step},
      {"diff", step + " " + step},
      {"convert", step + " " + out + " --to dcp"},
      {"reshard", step + " " + out + " --mesh 2 --default R"},
      {"plan", step + " --from-mesh 2 --from R --to-mesh 2 --to R"},
      {"run", "resume-plan " + made.folder.string() + " --mesh 2"},
      {"run", "list " + made.folder.string() + " --deep"},
      {"run", "verify " + made.folder.string()},
      {"run", "flatten " + made.folder.string() + " 1"},
      {"run", "diff " + made.folder.string() + " 1 1"},
      {"delta", "make " + step + " " + step + " " + out + ".delta"},
      {"map", "check " + step + " --map hf.llama:meta.llama"},
  };
  for (const auto& [command, arguments] : calls) {
    const std::string said = run_tool(command + " " + arguments).err;
    const std::string help = run_tool(command + " --help").out + run_tool("--help").out;
    const std::set<std::string> own = options_in(help);
    INFO(command << " " << arguments << "\n" << said);
    const bool names_convert = said.find("convert the checkpoint with --rank") != std::string::npos;
    for (const std::string& option : options_in(said)) {
      INFO(option);
      CHECK((own.contains(option) || (names_convert && options_in(run_tool("convert --help").out).contains(option))));
    }
  }
  CHECK(run_tool("diff " + step + " " + step).err.find("--keys-at-ranks, keys_at_ranks=True") != std::string::npos);
  CHECK(run_tool("delta make " + step + " " + step + " " + out + ".delta").err == made.lines(as_copy));
}

TEST_CASE("convert and reshard name every entry of which the ranks saved different values") {
  const disputed_run made;
  const std::string step = made.step.string(), out = (made.scratch / "out").string();
  for (const std::string& call : {"convert " + step + " " + out + ".pt", "convert " + step + " " + out + " --to dcp",
                                  "reshard " + step + " " + out + " --mesh 2 --default R"}) {
    const tool_output run = run_tool(call);
    INFO(call);
    CHECK(run.status == 1);
    CHECK(run.out.empty());
    CHECK(sorted_lines(run.err) == sorted_lines(made.lines(as_rank)));
    CHECK_FALSE(fs::exists(out));
  }
  CHECK(run_tool("convert " + step + " " + out + ".pt --skip 'model.*' --skip 'opt.*'").err ==
        made.line("plain", "expected int64 [5, 3], found int64 [3, 5]", as_rank));
}

TEST_CASE("verify prints an entry of which the ranks saved different values once") {
  const disputed_run made;
  const tool_output run = run_tool("verify " + made.step.string());
  CHECK(run.status == 1);
  std::string disputes;
  std::istringstream lines(run.err);
  for (std::string line; std::getline(lines, line);)
    if (line.find("[disagreement]") != std::string::npos) disputes += line + "\n";
  CHECK(disputes == made.lines(as_rank));
  const auto document = nlohmann::json::parse(run_tool("verify " + made.step.string() + " --json").out);
  for (const auto& warning : document["warnings"]) CHECK(warning["code"] != "disagreement");
}
