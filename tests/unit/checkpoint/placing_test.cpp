// SPDX-License-Identifier: Apache-2.0
// Tests commits when others have put something at the destination meanwhile, and the leftovers of killed runs.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <run_tool.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.checkpoint;
import shardmesh.storage;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

void write_text(const fs::path& path, std::string_view text) {
  std::ofstream(path) << text;
}

// A folder's contents, leftovers included: a line "name=text" per file and "name/" per empty folder.
std::vector<std::string> contents_of(const fs::path& folder) {
  std::vector<std::string> lines;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      lines.push_back(entry.path().lexically_relative(folder).string() + "=" + read_text(entry.path()));
    else if (fs::is_empty(entry.path()))
      lines.push_back(entry.path().lexically_relative(folder).string() + "/");
  std::sort(lines.begin(), lines.end());
  return lines;
}
using lines = std::vector<std::string>;

staged_output folder_with(const fs::path& destination, std::string_view text, bool overwrite = false) {
  auto output =
      staged_output::directory(destination, {.overwrite = overwrite, .may_replace = holds_one_checkpoint}).value();
  REQUIRE(output.write(output.add_file("__0_0.distcp").value(), 0, bytes_of(text)));
  return output;
}

staged_output file_with(const fs::path& destination, std::string_view text, bool overwrite = false) {
  auto output = staged_output::file(destination, {.overwrite = overwrite, .may_replace = holds_one_checkpoint}).value();
  REQUIRE(output.write(output.add_file("").value(), 0, bytes_of(text)));
  return output;
}

// Commits `output`, which must be refused because of the existing destination; the error names it and `what`. The
// output ends here.
void refuses(staged_output output, const fs::path& destination, std::string_view what) {
  const auto done = output.commit();
  REQUIRE_FALSE(done);
  CHECK(done.error().code == errc::destination_exists);
  CHECK(done.error().file == destination.string());
  INFO(to_string(done.error()));
  CHECK(done.error().found.find(what) != std::string::npos);
}

// A killed run: its files stay, its locks are released.
fs::path killed_run(const scratch_folder& scratch, const std::string& name) {
  const fs::path path = scratch / name;
  fs::create_directory(path);
  write_text(path / "__0_0.distcp", "half");
  return path;
}

}  // namespace

TEST_CASE("a folder that appears while another is written is left alone") {
  for (const bool overwrite : {false, true}) {
    const scratch_folder scratch;
    auto output = folder_with(scratch / "o", "ours", overwrite);
    fs::create_directory(scratch / "o");
    write_text(scratch / "o" / "thesis.txt", "years");
    refuses(std::move(output), scratch / "o", "thesis.txt");
    CHECK(contents_of(scratch / "") == lines{"o/thesis.txt=years"});
  }
}

TEST_CASE("a file that appears where a folder is written, and one where a file is written, is left alone") {
  for (const bool overwrite : {false, true}) {
    const scratch_folder scratch;
    auto folder = folder_with(scratch / "o", "ours", overwrite);
    auto file = file_with(scratch / "f", "ours", overwrite);
    write_text(scratch / "o", "theirs");
    write_text(scratch / "f", "theirs");
    refuses(std::move(folder), scratch / "o", "a file");
    refuses(std::move(file), scratch / "f", "a file");
    CHECK(contents_of(scratch / "") == lines{"f=theirs", "o=theirs"});
  }
}

TEST_CASE("an empty folder is filled, but not once somebody else has put something there") {
  const scratch_folder scratch;
  fs::create_directory(scratch / "o");
  auto first = folder_with(scratch / "o", "first");
  auto second = folder_with(scratch / "o", "second");
  REQUIRE(first.commit());
  refuses(std::move(second), scratch / "o", "__0_0.distcp");
  CHECK(contents_of(scratch / "") == lines{"o/__0_0.distcp=first"});
}

TEST_CASE("of several files for one name without overwrite the first stays") {
  const scratch_folder scratch;
  auto first = file_with(scratch / "f", "first"), second = file_with(scratch / "f", "second");
  REQUIRE(first.commit());
  refuses(std::move(second), scratch / "f", "a file");
  CHECK(contents_of(scratch / "") == lines{"f=first"});
}

TEST_CASE("an overwrite replaces only what was looked at") {
  const scratch_folder scratch;
  REQUIRE(folder_with(scratch / "o", "old").commit());
  REQUIRE(file_with(scratch / "f", "old").commit());
  SECTION("not a folder to which something was added") {
    auto output = folder_with(scratch / "o", "new", true);
    write_text(scratch / "o" / "__7_0.distcp", "added");
    refuses(std::move(output), scratch / "o", "new: __7_0.distcp");
    CHECK(contents_of(scratch / "") == lines{"f=old", "o/__0_0.distcp=old", "o/__7_0.distcp=added"});
  }
  SECTION("not a folder of which a file was written to, or taken away") {
    auto output = folder_with(scratch / "o", "new", true), other = folder_with(scratch / "o", "new", true);
    write_text(scratch / "o" / "__0_0.distcp", "more");
    refuses(std::move(output), scratch / "o", "changed: __0_0.distcp");
    write_text(scratch / "o" / "__1_0.distcp", "more");
    fs::remove(scratch / "o" / "__0_0.distcp");
    refuses(std::move(other), scratch / "o", "gone: __0_0.distcp");
    CHECK(contents_of(scratch / "") == lines{"f=old", "o/__1_0.distcp=more"});
  }
  SECTION("not what another overwrite has put there") {
    auto first = folder_with(scratch / "o", "first", true), second = folder_with(scratch / "o", "second", true);
    auto one = file_with(scratch / "f", "first", true), two = file_with(scratch / "f", "second", true);
    REQUIRE(first.commit());
    REQUIRE(one.commit());
    refuses(std::move(second), scratch / "o", "__0_0.distcp");
    refuses(std::move(two), scratch / "f", "a file");
    CHECK(contents_of(scratch / "") == lines{"f=first", "o/__0_0.distcp=first"});
  }
  SECTION("not a file that was written to") {
    auto output = file_with(scratch / "f", "new", true);
    write_text(scratch / "f", "newer");
    refuses(std::move(output), scratch / "f", "different contents");
    CHECK(contents_of(scratch / "") == lines{"f=newer", "o/__0_0.distcp=old"});
  }
  SECTION("and a place that became free is taken") {
    auto folder = folder_with(scratch / "o", "new", true);
    auto file = file_with(scratch / "f", "new", true);
    fs::remove_all(scratch / "o");
    fs::remove(scratch / "f");
    REQUIRE(folder.commit());
    REQUIRE(file.commit());
    CHECK(contents_of(scratch / "") == lines{"f=new", "o/__0_0.distcp=new"});
  }
  SECTION("which then goes, hard links of one file included") {
    fs::create_hard_link(scratch / "o" / "__0_0.distcp", scratch / "o" / "__1_0.distcp");
    auto folder = folder_with(scratch / "o", "new", true);
    auto file = file_with(scratch / "f", "new", true);
    REQUIRE(folder.commit());
    REQUIRE(file.commit());
    CHECK(contents_of(scratch / "") == lines{"f=new", "o/__0_0.distcp=new"});
  }
}

TEST_CASE("what a process that joined leaves behind is never the old checkpoint") {
  const scratch_folder scratch;
  REQUIRE(folder_with(scratch / "o", "old").commit());
  auto output = folder_with(scratch / "o", "new", true);
  const fs::path staging = output.folder();
  {
    const auto joined = staged_output::join(staging).value();
    fs::rename(staging, scratch / "ours");  // as the exchange in a commit does
    fs::rename(scratch / "o", staging);
  }
  CHECK(read_text(staging / "__0_0.distcp") == "old");
}

TEST_CASE("only files and folders are replaced, whatever is said") {
  const scratch_folder scratch;
  REQUIRE(::mkfifo((scratch / "fifo").c_str(), 0600) == 0);
  fs::create_symlink(scratch / "nowhere", scratch / "link");
  for (const auto& [name, what] : {std::pair{"fifo", "a FIFO"}, std::pair{"link", "a broken symbolic link"}}) {
    for (const bool is_folder : {false, true}) {
      const auto refused = is_folder ? staged_output::directory(scratch / name, {.overwrite = true})
                                     : staged_output::file(scratch / name, {.overwrite = true});
      REQUIRE_FALSE(refused);
      CHECK(refused.error().code == errc::destination_exists);
      CHECK(to_string(refused.error()).find(what) != std::string::npos);
    }
  }
}

TEST_CASE("more than a file system has room for is refused with both numbers") {
  const scratch_folder scratch;
  const auto output = staged_output::directory(scratch / "o").value();
  CHECK(output.reserve(1));
  const std::int64_t much = std::int64_t{1} << 60;
  const auto refused = output.reserve(much);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::no_space);
  CHECK(refused.error().file == (scratch / "o").string());
  CHECK(refused.error().expected == std::to_string(much) + " bytes of free space");
  CHECK_FALSE(refused.error().found.empty());
}

TEST_CASE("leftovers are told from what is being written by a lock") {
  const scratch_folder scratch;
  const fs::path dead = killed_run(scratch, ".o.shardmesh-tmp-0123abcd-1-0123abcd");
  killed_run(scratch, ".other.shardmesh-tmp-0123abcd-1-0123abcd");
  fs::create_directory(scratch / ".o.shardmesh-tmp-but-not-ours");
  fs::create_symlink(scratch / "o", scratch / ".o.shardmesh-tmp-0123abcd-1-00000000");
  write_text(scratch / ".f.shardmesh-tmp-0123abcd-1-0123abcd-discarded-77", "half");
  const auto output = folder_with(scratch / "o", "living");
  auto found = find_leftovers(scratch / "o", {.shared = false}).value();
  REQUIRE(found.size() == 2);
  if (found[0].path != dead) std::swap(found[0], found[1]);
  CHECK(found[0].path == dead);
  CHECK(found[0].owner == leftover_owner::dead);
  CHECK(found[0].size_bytes == 4);
  CHECK(found[1].path == output.folder());
  CHECK(found[1].owner == leftover_owner::alive);
  CHECK(find_leftovers(scratch / "f").value().size() == 1);
  CHECK(find_leftovers(scratch / "").value().size() == 4);
  CHECK(find_leftovers(scratch / "none").value().empty());
  CHECK_FALSE(find_leftovers(scratch / "no" / "where"));
  const auto refused = remove_leftover(output.folder());
  REQUIRE_FALSE(refused);
  CHECK(to_string(refused.error()) == output.folder().string() + ": is being written");
  REQUIRE(remove_leftover(dead, {.shared = false}));
  REQUIRE(remove_leftover(scratch / ".f.shardmesh-tmp-0123abcd-1-0123abcd-discarded-77", {.shared = false}));
  CHECK_FALSE(remove_leftover(scratch / ".o.shardmesh-tmp-but-not-ours"));
  CHECK(find_leftovers(scratch / "").value().size() == 2);
}

TEST_CASE("on a file system that hosts share, only locks of this host are believed") {
  const scratch_folder scratch;
  const fs::path theirs = killed_run(scratch, ".o.shardmesh-tmp-0123abcd-1-0123abcd");
  const auto found = find_leftovers(scratch / "o", {.shared = true}).value();
  REQUIRE(found.size() == 1);
  CHECK(found[0].owner == leftover_owner::unknown);
  const auto refused = remove_leftover(theirs, {.shared = true});
  REQUIRE_FALSE(refused);
  CHECK(to_string(refused.error()).find("cannot determine whether its owner is alive") != std::string::npos);
  fs::path ours;
  {
    auto output = folder_with(scratch / "p", "ours");
    fs::rename(output.folder(), scratch / "aside");  // so that the output does not find it and leaves it there
    ours = output.folder();
  }
  fs::rename(scratch / "aside", ours);
  CHECK(find_leftovers(scratch / "p", {.shared = true}).value().at(0).owner == leftover_owner::dead);
  CHECK(remove_leftover(ours, {.shared = true}));
}

TEST_CASE("the next output for a destination notes its leftovers, and an overwrite removes them") {
  const scratch_folder scratch;
  const fs::path dead = killed_run(scratch, ".o.shardmesh-tmp-0123abcd-1-0123abcd");
  {
    const auto output = folder_with(scratch / "o", "new");
    REQUIRE(output.notes().size() == 1);
    CHECK(output.notes()[0] == dead.string() + ": 4 bytes left by a run that was killed; it is not needed");
  }
  CHECK(fs::exists(dead));
  const auto output = folder_with(scratch / "o", "new", true);
  REQUIRE(output.notes().size() == 1);
  CHECK(output.notes()[0] == dead.string() + ": 4 bytes left by a run that was killed; removed");
  CHECK_FALSE(fs::exists(dead));
}

TEST_CASE("temporary names of long destinations are short enough and tell destinations apart") {
  const scratch_folder scratch;
  const std::string one(255, 'a');
  const std::string other = std::string(254, 'a') + "b";
  auto first = folder_with(scratch / one, "first"), second = folder_with(scratch / other, "second");
  CHECK(find_leftovers(scratch / one).value().size() == 1);
  CHECK(find_leftovers(scratch / other).value().size() == 1);
  REQUIRE(first.commit());
  REQUIRE(second.commit());
  CHECK(contents_of(scratch / "") == lines{one + "/__0_0.distcp=first", other + "/__0_0.distcp=second"});
}
