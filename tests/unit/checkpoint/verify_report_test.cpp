// SPDX-License-Identifier: Apache-2.0
// Tests `verify` on truncated archives, on more problems than it lists, and on a reader that is stopped.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <golden.hpp>
#include <iterator>
#include <memory>
#include <scratch_folder.hpp>
#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint_core;
import shardmesh.checkpoint;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

fs::path writers() {
  return golden::folder().parent_path() / "writers";
}

std::vector<std::string> lines_of(const std::vector<error>& errors) {
  std::vector<std::string> lines;
  for (const error& e : errors) lines.push_back(to_string(e));
  return lines;
}

// Shows a whole checkpoint, and opens no chunk: its user has stopped the check.
class stopped_reader final : public forwarding_reader {
 public:
  explicit stopped_reader(std::unique_ptr<checkpoint_reader> opened) : forwarding_reader(std::move(opened)) {
    for (std::size_t i = 0; i < inner().contents().tensors.size(); ++i) add_whole_tensor(i);
  }
  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry&, std::int32_t) override {
    return fail(errc::cancelled, "the check was stopped");
  }
};

}  // namespace

TEST_CASE("a .pt file that is cut off is one problem, and its names are not known") {
  const scratch_folder scratch;
  const std::string whole = bytes_of(writers() / "wrappers/wrappers.pt");
  const fs::path file = scratch / "cut.pt";
  REQUIRE(whole.size() > 1000);
  for (const std::size_t length : {whole.size() / 2, whole.size() - 4}) {
    write(file, whole.substr(0, length));
    const auto opened = open_checkpoint(file);
    REQUIRE_FALSE(opened);
    const verify_report report = verify_unreadable(file, opened.error()).value();
    CHECK(lines_of(report.problems) == std::vector<std::string>{file.string() + ": malformed ZIP archive: it has no "
                                                                                "end record (cut off?)"});
    CHECK(report.more_problems == 0);
    CHECK(lines_of(report.warnings) ==
          std::vector<std::string>{file.string() + ": it cannot be read: the names in its pickles are unknown; "
                                                   "Python may still read it, and look up the names in it"});
    CHECK(count_globals(report.globals).dangerous == std::vector<std::string>{});
  }
  for (const auto& [bytes, said] :
       {std::pair<std::string, std::string>{whole.substr(0, 3), "it is neither an archive of torch.save nor a pickle"},
        {"", "it is empty"}}) {
    write(file, bytes);
    const auto opened = open_checkpoint(file);
    REQUIRE_FALSE(opened);
    const verify_report report = verify_unreadable(file, opened.error()).value();
    CHECK(lines_of(report.problems) == std::vector<std::string>{file.string() + ": " + said});
    CHECK(lines_of(report.warnings) == std::vector<std::string>{});
  }
}

TEST_CASE("a hundred damaged archives beside a checkpoint are named, in order, and the others counted") {
  const scratch_folder scratch;
  const fs::path folder = scratch / "many";
  fs::copy(golden::folder() / "single_rank/checkpoint", folder);
  const std::string cut = bytes_of(writers() / "wrappers/wrappers.pt").substr(0, 1000);
  std::vector<std::string> named;
  for (int i = 0; i < 103; ++i) {
    const std::string name = fmt::format("{:03}.pt", i);
    write(folder / name, cut);
    if (i < 100) named.push_back("malformed ZIP archive: it has no end record (cut off?)");
  }
  const auto reader = open_checkpoint(folder).value();
  const verify_report report = verify(*reader).value();
  REQUIRE(report.problems.size() == 100);
  std::vector<std::string> files, messages;
  for (const error& e : report.problems) messages.push_back(e.message), files.push_back(e.file);
  CHECK(messages == named);
  CHECK(std::is_sorted(files.begin(), files.end()));
  CHECK(files.back().ends_with("099.pt"));
  CHECK(report.more_problems == 3);
  // Writers refuse them as well.
  const auto converted = convert(*reader, scratch / "out", {.format = target_format::dcp});
  REQUIRE_FALSE(converted);
  CHECK(lines_of(converted.error().problems()) == lines_of(report.problems));
  CHECK(converted.error().problem_count() == 103);
  CHECK(to_string(converted.error()).ends_with(" (and 102 other problems)"));
  CHECK_FALSE(fs::exists(scratch / "out"));
}

TEST_CASE("a refused copy counts the one problem that it does not name") {
  const scratch_folder scratch;
  const fs::path folder = scratch / "one_more";
  fs::copy(golden::folder() / "single_rank/checkpoint", folder);
  const std::string cut = bytes_of(writers() / "wrappers/wrappers.pt").substr(0, 1000);
  for (int i = 0; i < 101; ++i) write(folder / fmt::format("{:03}.pt", i), cut);
  const auto reader = open_checkpoint(folder).value();
  const auto converted = convert(*reader, scratch / "out", {.format = target_format::dcp});
  REQUIRE_FALSE(converted);
  CHECK(converted.error().problems().size() == 100);
  CHECK(converted.error().more == 1);
}

TEST_CASE("verify of a reader that is stopped is an error, and no problem of the checkpoint") {
  stopped_reader reader(open_checkpoint(golden::folder() / "single_rank/checkpoint").value());
  REQUIRE_FALSE(reader.contents().tensors.empty());
  const auto checked = verify(reader, {.threads = 1});
  REQUIRE_FALSE(checked);
  CHECK(checked.error().code == errc::cancelled);
  CHECK(checked.error().message == "the check was stopped");
  CHECK(checked.error().problem_count() == 1);
}
