// SPDX-License-Identifier: Apache-2.0
// Tests options that write a file: in every command, they replace no file without --force.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <run_tool.hpp>
#include <string>

namespace fs = std::filesystem;

namespace {

const std::string golden = std::string(SHARDMESH_TEST_DATA) + "/golden/dtensor_shard0_4/checkpoint";
const std::string plan = "plan --shape 4 --from-mesh 2 --from 'S(0)' --to-mesh 2 --to R";
const std::string layout = "layout --shape 4 --mesh 2 --place 'S(0)'";

// The commands, without the file's name.
const std::string calls[] = {"inspect " + golden + " --svg ",
                             "inspect " + golden + " --tree --svg ",
                             "inspect " + golden + " --html ",
                             plan + " --svg ",
                             "diff " + golden + " " + golden + " --html ",
                             plan + " --html ",
                             layout + " --svg ",
                             layout + " --html "};

}  // namespace

TEST_CASE("a file that exists is replaced with --force alone, whichever option names it") {
  const scratch_folder folder;
  const fs::path file = folder / "thesis.tex";
  for (const std::string& call : calls) {
    INFO(call);
    std::ofstream(file) << "mine";
    for (const std::string before : {"", " --json"}) {
      const auto refused = run_tool(call + file.string() + before);
      CHECK(refused.status == 2);
      CHECK(refused.err == file.string() + ": exists already; pass --force to replace it [destination_exists]\n");
      CHECK(read_text(file) == "mine");
    }
    const auto forced = run_tool(call + file.string() + " --force");
    CHECK(forced.status == 0);
    CHECK(forced.err.empty());
    CHECK(read_text(file).starts_with("<"));
    CHECK(std::distance(fs::directory_iterator(folder / ""), {}) == 1);
  }
}

TEST_CASE("a link to a file is that file, a link that leads nowhere and a folder are refused, a device is written to") {
  const scratch_folder folder;
  const fs::path file = folder / "file", link = folder / "link", lost = folder / "lost", inner = folder / "inner";
  std::ofstream(file) << "mine";
  fs::create_symlink(file, link);
  fs::create_directory(inner);
  for (const std::string& call : calls) {
    INFO(call);
    CHECK(run_tool(call + link.string()).status == 2);
    CHECK(read_text(file) == "mine");
    for (const std::string flags : {"", " --force"}) CHECK(run_tool(call + inner.string() + flags).status != 0);
    CHECK(fs::is_empty(inner));
    CHECK(run_tool(call + "/dev/null").status == 0);
    CHECK(run_tool(call + "/dev/full").status == 3);
    const auto nowhere = run_tool(call + (folder / "no" / "file").string());
    CHECK(nowhere.status == 3);
    CHECK(nowhere.err == (folder / "no" / "file").string() + ": cannot write: No such file or directory [io]\n");
  }
}

TEST_CASE("one file for two outputs is refused by the second, and the first is whole") {
  const scratch_folder folder;
  const fs::path file = folder / "both";
  const auto run = run_tool(plan + " --svg " + file.string() + " --html " + file.string());
  CHECK(run.status == 2);
  CHECK(read_text(file).starts_with("<svg"));
}
