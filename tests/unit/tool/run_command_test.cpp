// SPDX-License-Identifier: Apache-2.0
// Tests `shardmesh run` on a folder of golden checkpoints.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <run_tool.hpp>
#include <scratch_folder.hpp>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;

// A run with the steps 5, 10, 20, and 30, which PyTorch wrote. Step 30 lacks its description.
struct golden_run {
  scratch_folder scratch;
  fs::path folder = scratch / "run";

  golden_run() {
    for (const char* const step : {"step-5", "step-10", "step-20", "step-30"}) {
      fs::create_directories(folder / step);
      for (const auto& entry : fs::directory_iterator(fs::path(SHARDMESH_TEST_DATA) / "golden/single_rank/checkpoint"))
        fs::copy(entry.path(), folder / step);
    }
    fs::remove(folder / "step-30" / ".metadata");
  }
  tool_output run(const std::string& action, const std::string& options = "") const {
    return run_tool("run " + action + " " + folder.string() + " " + options);
  }
  std::vector<std::string> left() const {
    std::vector<std::string> names;
    for (const char* const step : {"step-5", "step-10", "step-20", "step-30"})
      if (fs::exists(folder / step)) names.emplace_back(step);
    return names;
  }
};

using names = std::vector<std::string>;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("run list shows each step, its state, and what keeps it") {
  const golden_run golden;
  const tool_output plain = golden.run("list", "--keep-last 1 --keep-every 10");
  INFO(plain.out << plain.err);
  CHECK(plain.status == 0);
  CHECK(has(plain.out, "kept by"));
  CHECK(has(plain.out, "good     last 1, every 10, newest good step\n"));
  CHECK(has(plain.out, "damaged  fails the check\n"));
  CHECK(has(plain.out, "good     -\n"));
  CHECK(has(plain.err, "step-30"));
  const tool_output json = golden.run("list", "--keep-last 1 --keep-every 10 --json");
  const nlohmann::json document = nlohmann::json::parse(json.out);
  REQUIRE(document["steps"].size() == 4);
  CHECK(document["ok"] == true);
  CHECK(document["steps"][0]["step"] == 5);
  CHECK(document["steps"][0]["kept_by"].empty());
  CHECK(document["steps"][1]["kept_by"] == nlohmann::json::array({"every 10"}));
  CHECK(document["steps"][2]["good"] == true);
  CHECK(document["steps"][3]["good"] == false);
  CHECK(document["steps"][3]["metric"].is_null());
}

TEST_CASE("run latest prints the newest good step, and a note about each newer one") {
  const golden_run golden;
  for (const char* const options : {"", "--deep", "--names step"}) {
    INFO(options);
    const tool_output found = golden.run("latest", options);
    CHECK(found.status == 0);
    CHECK(found.out == (golden.folder / "step-20").string() + "\n");
    CHECK(has(found.err, "step-30"));
  }
  const tool_output none = golden.run("latest", "--names iter");
  CHECK(none.status == 1);
  CHECK(has(none.err, "no good step"));
}

TEST_CASE("run verify fails for a damaged step, and names it") {
  const golden_run golden;
  const tool_output damaged = golden.run("verify");
  CHECK(damaged.status == 1);
  CHECK(has(damaged.err, "step-30"));
  fs::remove_all(golden.folder / "step-30");
  const tool_output whole = golden.run("verify");
  CHECK(whole.status == 0);
  CHECK(has(whole.out, "ok: 3 good steps"));
}

TEST_CASE("run prune deletes what --dry-run shows, and nothing else") {
  const golden_run golden;
  const tool_output shown = golden.run("prune", "--keep-last 1 --dry-run");
  INFO(shown.out << shown.err);
  CHECK(shown.status == 0);
  CHECK(has(shown.out, "would remove " + (golden.folder / "step-5").string()));
  CHECK(has(shown.out, "would remove " + (golden.folder / "step-10").string()));
  CHECK(has(shown.out, "would remove 2 steps"));
  CHECK(golden.left() == names{"step-5", "step-10", "step-20", "step-30"});
  const tool_output pruned = golden.run("prune", "--keep-last 1");
  CHECK(pruned.status == 0);
  CHECK(has(pruned.out, "removed 2 steps"));
  CHECK(golden.left() == names{"step-20", "step-30"});
}

TEST_CASE("run pin keeps a step from every prune, until run unpin") {
  const golden_run golden;
  const tool_output pinned = golden.run("pin", "5");
  INFO(pinned.out << pinned.err);
  CHECK(pinned.status == 0);
  CHECK(pinned.out == (golden.folder / "step-5").string() + ": pinned\n");
  CHECK(golden.run("prune", "--keep-last 1").status == 0);
  CHECK(golden.left() == names{"step-5", "step-20", "step-30"});
  const nlohmann::json unpinned = nlohmann::json::parse(golden.run("unpin", "5 --json").out);
  CHECK(unpinned["ok"] == true);
  REQUIRE(unpinned["steps"].size() == 1);
  CHECK(unpinned["steps"][0]["step"] == 5);
  CHECK(unpinned["steps"][0]["pinned"] == false);
  CHECK(golden.run("prune", "--keep-last 1").status == 0);
  CHECK(golden.left() == names{"step-20", "step-30"});
}

TEST_CASE("run pin of a step that is not there, or of no step, is an error") {
  const golden_run golden;
  const tool_output missing = golden.run("pin", "7");
  CHECK(missing.status == 2);
  CHECK(has(missing.err, "no step 7"));
  CHECK(golden.run("pin").status == 2);
  CHECK(golden.run("pin", "5 10").status == 2);
  CHECK(golden.run("pin", "newest").status == 2);
  CHECK(golden.run("list", "5").status == 2);
  CHECK_FALSE(fs::exists(golden.folder / ".step-7.pinned"));
}

TEST_CASE("numbers of the command line are decimal, also with leading zeros as in iter_0000010") {
  const golden_run golden;
  const tool_output pinned = golden.run("pin", "0000010");
  INFO(pinned.out << pinned.err);
  CHECK(pinned.out == (golden.folder / "step-10").string() + ": pinned\n");
  CHECK(fs::exists(golden.folder / ".step-10.pinned"));
  CHECK(golden.run("flatten", "005").out == (golden.folder / "step-5").string() + ": refers to no other step\n");
  CHECK(has(golden.run("list", "--keep-last 010 --threads 01").out, "last 10"));
  CHECK(has(golden.run("list", "--keep-last 0x10").err, "'0x10' is not a whole number of at least 1"));
}

TEST_CASE("run diff compares two steps as diff does") {
  const golden_run golden;
  const tool_output equal = golden.run("diff", "5 20");
  INFO(equal.out << equal.err);
  CHECK(equal.status == 0);
  const std::string left = (golden.folder / "step-5").string(), right = (golden.folder / "step-20").string();
  CHECK(equal.out == run_tool("diff " + left + " " + right).out);
  CHECK(golden.run("diff", "5 20 --json").out == run_tool("diff " + left + " " + right + " --json").out);
  CHECK(golden.run("diff", "5 30").status != 0);
  CHECK(golden.run("diff", "5").status == 2);
  const tool_output missing = golden.run("diff", "5 7 --json");
  CHECK(missing.status == 3);
  CHECK(has(missing.err, "step-7"));
  CHECK(nlohmann::json::parse(missing.out)["ok"] == false);
}

TEST_CASE("run flatten leaves a step as it is that refers to no other, and explains a damaged or missing one") {
  const golden_run golden;
  const tool_output plain = golden.run("flatten", "5");
  INFO(plain.out << plain.err);
  CHECK(plain.status == 0);
  CHECK(plain.out == (golden.folder / "step-5").string() + ": refers to no other step\n");
  const nlohmann::json document = nlohmann::json::parse(golden.run("flatten", "5 --json").out);
  CHECK(document["ok"] == true);
  CHECK(document["copied_bytes"] == 0);
  CHECK(document["copied_from"].empty());
  CHECK(document["steps"][0]["step"] == 5);
  CHECK(golden.run("flatten", "30").status == 1);
  CHECK(golden.run("flatten", "7").status == 2);
  CHECK(golden.run("flatten").status == 2);
}

TEST_CASE("run explains wrong arguments and missing folders") {
  const golden_run golden;
  CHECK(golden.run("list", "--dry-run").status == 2);
  CHECK(golden.run("prune", "--keep-last 0").status == 2);
  CHECK(golden.run("compact").status == 2);
  CHECK(run_tool("run list s3://bucket/run").status != 0);
  const tool_output missing = run_tool("run list " + (golden.folder / "none").string());
  CHECK(missing.status == 3);
  CHECK(has(missing.err, "none"));
  fs::create_directory(golden.folder / "checkpoint-7");
  const tool_output mixed = golden.run("list");
  CHECK(mixed.status == 2);
  CHECK(has(mixed.err, "--names"));
}

TEST_CASE("run --within ends every action with status 3, calls no step damaged, and changes nothing") {
  const golden_run golden;
  using call = std::pair<const char*, const char*>;
  for (const auto& [action, options] :
       {call{"list", ""}, call{"latest", ""}, call{"verify", ""}, call{"prune", "--keep-last 1"},
        call{"prune", "--keep-last 1 --dry-run"}, call{"pin", "5"}, call{"flatten", "5"}}) {
    const tool_output late = golden.run(action, options + std::string(" --within 0"));
    INFO(late.out << late.err);
    CHECK(late.status == 3);
    CHECK(late.out.empty());
    CHECK(late.error_lines() == 1);
    CHECK(has(late.err, "[deadline_exceeded]"));
    CHECK_FALSE(has(late.err, "step-20: the step is skipped"));
  }
  CHECK(golden.left() == names{"step-5", "step-10", "step-20", "step-30"});
  CHECK_FALSE(fs::exists(golden.folder / ".step-5.pinned"));
  const tool_output listed = golden.run("list", "--deep --within 0 --json");
  const nlohmann::json document = nlohmann::json::parse(listed.out);
  CHECK(listed.status == 3);
  CHECK(document["ok"] == false);
  CHECK(document["steps"].empty());
  CHECK(document["problems"][0]["code"] == "deadline_exceeded");
}

TEST_CASE("run resume-plan shows the newest good step, why newer ones are skipped, and the bytes of each rank") {
  const golden_run golden;
  const std::string how = "--mesh 2 --place 'w=S(0)'";
  const tool_output plain = golden.run("resume-plan", how);
  INFO(plain.out << plain.err);
  CHECK(plain.status == 0);
  CHECK(has(plain.err, "step-30"));
  CHECK(has(plain.err, "note: 1 tensor matches no placement rule and is replicated on all 2 ranks: nested.b\n"));
  CHECK_FALSE(has(golden.run("resume-plan", how + " --default R").err, "no placement rule"));
  CHECK(has(plain.out, (golden.folder / "step-20").string() + ": 2 tensors for the 2 ranks of the mesh 2\n"));
  // "w" is float32[4, 3], of which each rank wants two rows; "nested.b" is int32[4], and both ranks want it.
  CHECK(has(plain.out, "the ranks receive 80 bytes (at least 80 bytes); together they read 64 bytes from the files\n"));
  CHECK(has(plain.out, "      0    40 bytes       1\n      1    40 bytes       1\n"));
  CHECK(has(plain.out, "file  0: __0_0.distcp\n"));
  const nlohmann::json document = nlohmann::json::parse(golden.run("resume-plan", how + " --json").out);
  CHECK(document["ok"] == true);
  CHECK(document["step"] == 20);
  CHECK(document["path"] == (golden.folder / "step-20").string());
  REQUIRE(document["skipped"].size() == 1);
  CHECK(document["skipped"][0]["file"] == (golden.folder / "step-30").string());
  CHECK(document["tensors"] == 2);
  CHECK(document["stored_bytes"] == 64);
  CHECK(document["bytes_total"] == 80);
  CHECK(document["lower_bound"] == 80);
  CHECK(document["files"] == nlohmann::json::array({"__0_0.distcp"}));
  CHECK(document["ranks"] ==
        nlohmann::json::parse(R"([{"rank":0,"bytes":40,"files":1},{"rank":1,"bytes":40,"files":1}])"));
  CHECK(document["links"] ==
        nlohmann::json::parse(R"([{"file":0,"rank":0,"bytes":40},{"file":0,"rank":1,"bytes":40}])"));
  CHECK(document["notes"].back() == "1 object not in the plan: only tensors are cut");
  CHECK(document["problems"].empty());
}

TEST_CASE("run resume-plan writes a picture, and replaces one only with --force") {
  const golden_run golden;
  const std::string picture = (golden.scratch / "plan.svg").string();
  const std::string how = "--mesh dp=2,tp=2 --default 'R,S(0)' --svg " + picture;
  const tool_output drawn = golden.run("resume-plan", how);
  INFO(drawn.err);
  CHECK(drawn.status == 0);
  CHECK(drawn.out.empty());
  std::ifstream file(picture);
  const std::string svg{std::istreambuf_iterator<char>(file), {}};
  CHECK(has(svg, "<svg"));
  CHECK(has(svg, "from the files of step-20"));
  CHECK(golden.run("resume-plan", how).status == 2);
  CHECK(golden.run("resume-plan", how + " --force").status == 0);
}

TEST_CASE("run resume-plan refuses options that do not fit, and a run without a good step") {
  const golden_run golden;
  CHECK(has(golden.run("resume-plan").err, "needs the mesh that resumes; pass --mesh"));
  CHECK(golden.run("resume-plan", "--mesh 0").status == 2);
  CHECK(golden.run("resume-plan", "--mesh 2 --default 'S('").status == 2);
  CHECK(golden.run("resume-plan", "20 --mesh 2").status == 2);
  for (const char* const option : {"--default P", "--place '.*=P'", "--place 'w=S(0)' --place '.*=P(sum)'"}) {
    const tool_output partial = golden.run("resume-plan", std::string("--mesh 2 ") + option);
    INFO(option << partial.out << partial.err);
    CHECK(partial.status == 2);
    CHECK(has(partial.err, "a checkpoint holds values, not the terms of a Partial; pass S(d) or R"));
  }
  for (const char* const step : {"step-5", "step-10", "step-20"}) fs::remove(golden.folder / step / ".metadata");
  const tool_output none = golden.run("resume-plan", "--mesh 2 --json");
  CHECK(none.status == 1);
  CHECK(has(none.err, "the run has no good step"));
  CHECK(nlohmann::json::parse(none.out)["ok"] == false);
}

TEST_CASE("run refuses each option that the action does not use, and names it and the actions that do") {
  const golden_run golden;
  const auto refused = [&](const std::string& action, const std::string& option, const std::string& users) {
    const std::string name = option.substr(0, option.find(' '));
    const tool_output run = golden.run(action, option);
    INFO(action << " " << option << "\n" << run.err);
    CHECK(run.status == 2);
    CHECK(run.out.empty());
    CHECK(run.err == name + " is an option of " + users + " only; leave it out [invalid_argument]\n");
  };
  for (const char* const option :
       {"--keep-last 1", "--keep-every 10", "--keep-best 1", "--keep-days 3", "--keep-best 1 --highest-is-best"})
    for (const char* const action : {"latest", "verify", "resume-plan", "pin", "unpin", "diff", "flatten"})
      refused(action, option, "'run list' and 'run prune'");
  for (const char* const option : {"--mesh 2", "--place 'w=R'", "--default R", "--svg plan.svg", "--force"})
    for (const char* const action : {"list", "latest", "verify", "prune", "pin", "unpin", "diff", "flatten"})
      refused(action, option, "'run resume-plan'");
  for (const char* const action : {"verify", "prune", "pin", "unpin", "diff", "flatten"})
    refused(action, "--deep", "'run list', 'run latest' and 'run resume-plan'");
  for (const char* const action : {"list", "latest", "verify", "resume-plan", "pin", "unpin", "diff", "flatten"})
    refused(action, "--dry-run", "'run prune'");
  const tool_output alone = golden.run("prune", "--highest-is-best");
  CHECK(alone.status == 2);
  CHECK(has(alone.err, "--highest-is-best requires --keep-best"));
  CHECK(golden.left() == names{"step-5", "step-10", "step-20", "step-30"});
}

TEST_CASE("run --json prints one document after a failure, with the members of the action's document") {
  const golden_run golden;
  const auto members = [](const tool_output& run) {
    const nlohmann::json document = nlohmann::json::parse(run.out);
    names found;
    for (const auto& one : document.items()) found.push_back(one.key());
    return found;
  };
  const auto failed = [&](const std::string& call, int status, const names& expected) {
    const tool_output run = run_tool("run " + call + " --json");
    INFO(call << "\n" << run.out << run.err);
    CHECK(run.status == status);
    const nlohmann::json document = nlohmann::json::parse(run.out);
    CHECK(document["ok"] == false);
    REQUIRE(document["problems"].size() == 1);
    CHECK(document["more_problems"] == 0);
    CHECK(has(run.err, document["problems"][0]["text"].get<std::string>() + "\n"));
    for (const std::string& name : expected) {
      INFO(name);
      CHECK(document.contains(name));
    }
  };
  const std::string here = golden.folder.string(), nowhere = (golden.scratch / "none").string();
  const tool_output equal = golden.run("diff", "5 10 --json");
  REQUIRE(equal.status == 0);
  for (const std::string& where : {here + " 5 7", nowhere + " 5 10"}) failed("diff " + where, 3, members(equal));
  failed("diff " + here + " 5", 2, members(equal));
  failed("diff s3://bucket/run 5 10", 1, members(equal));
  failed("diff " + here + " 5 10 --deep", 2, members(equal));
  const tool_output planned = golden.run("resume-plan", "--mesh 2 --json");
  REQUIRE(planned.status == 0);
  failed("resume-plan " + nowhere + " --mesh 2", 3, members(planned));
  failed("resume-plan " + here, 2, members(planned));
  failed("resume-plan " + here + " --names iter --mesh 2", 1, members(planned));
  failed("resume-plan " + here + " --mesh 2 --place 'no such key=R'", 2, members(planned));
  const tool_output listed = golden.run("list", "--json");
  REQUIRE(listed.status == 0);
  for (const char* const action : {"list ", "latest ", "verify ", "prune "})
    failed(action + nowhere, 3, members(listed));
  failed("latest " + here + " --names iter", 1, members(listed));
  failed("pin " + here + " 7", 2, members(listed));
  failed("flatten " + here + " 7", 2, members(listed));
  failed("list " + here + " --within 0", 3, members(listed));
}
