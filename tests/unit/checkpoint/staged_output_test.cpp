// SPDX-License-Identifier: Apache-2.0
// Tests output that appears whole or not at all: commits, overwrites, refused destinations, and folders that several
// ranks write.
#include <unistd.h>
#include <catch2/catch_test_macros.hpp>
#include <scratch_folder.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

import shardmesh.checkpoint;
import shardmesh.storage;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

std::size_t entries_of(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

void write_text(const fs::path& path, std::string_view text) {
  std::ofstream(path) << text;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

result<void> save(const fs::path& destination, std::string_view text, bool overwrite, bool commit = true) {
  auto output = staged_output::directory(destination, {.overwrite = overwrite, .may_replace = holds_one_checkpoint});
  if (!output) return output.error();
  const auto file = output->add_file("__0_0.distcp");
  if (!file) return file.error();
  if (auto done = output->write(*file, 0, bytes_of(text)); !done) return done;
  return commit ? output->commit() : result<void>{};
}

}  // namespace

TEST_CASE("without a commit nothing remains, not even the temporary") {
  const scratch_folder scratch;
  REQUIRE(save(scratch.path / "out", "new", false, false));
  CHECK(entries_of(scratch.path) == 0);
}

TEST_CASE("an existing destination needs overwrite, and is then replaced whole") {
  const scratch_folder scratch;
  REQUIRE(save(scratch.path / "out", "old", false));
  const auto refused = save(scratch.path / "out", "new", false);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::destination_exists);
  CHECK(to_string(refused.error()).find("pass overwrite to replace it") != std::string::npos);
  CHECK(text_of(scratch.path / "out" / "__0_0.distcp") == "old");
  write_text(scratch.path / "out" / "__7_0.distcp", "stale");
  REQUIRE(save(scratch.path / "out", "new", true));
  CHECK(text_of(scratch.path / "out" / "__0_0.distcp") == "new");
  CHECK_FALSE(fs::exists(scratch.path / "out" / "__7_0.distcp"));
  CHECK(entries_of(scratch.path) == 1);
}

TEST_CASE("a folder that holds more than a checkpoint is never replaced") {
  const scratch_folder scratch;
  fs::create_directory(scratch.path / "home");
  write_text(scratch.path / "home" / "thesis.txt", "years");
  const auto refused = save(scratch.path / "home", "new", true);
  REQUIRE_FALSE(refused);
  CHECK(to_string(refused.error()).find("thesis.txt") != std::string::npos);
  CHECK(text_of(scratch.path / "home" / "thesis.txt") == "years");
}

TEST_CASE("an empty folder may be filled without overwrite") {
  const scratch_folder scratch;
  fs::create_directory(scratch.path / "out");
  REQUIRE(save(scratch.path / "out", "new", false));
  CHECK(text_of(scratch.path / "out" / "__0_0.distcp") == "new");
}

TEST_CASE("a destination inside the source is refused, also through a symbolic link") {
  const scratch_folder scratch;
  fs::create_directory(scratch.path / "source");
  fs::create_directory_symlink(scratch.path / "source", scratch.path / "link");
  CHECK_FALSE(check_not_inside(scratch.path / "source" / "out", scratch.path / "source"));
  CHECK_FALSE(check_not_inside(scratch.path / "link" / "out", scratch.path / "source"));
  CHECK_FALSE(check_not_inside(scratch.path / "source", scratch.path / "source"));
  CHECK(check_not_inside(scratch.path / "source2", scratch.path / "source"));
}

TEST_CASE("a bare name is a destination in the current folder") {
  const scratch_folder scratch;
  const fs::path before = fs::current_path();
  fs::current_path(scratch.path);
  const auto done = save("out", "new", false);
  fs::current_path(before);
  REQUIRE(done);
  CHECK(text_of(scratch.path / "out" / "__0_0.distcp") == "new");
}

TEST_CASE("a missing parent folder is named before anything is written") {
  const scratch_folder scratch;
  const auto refused = save(scratch.path / "no" / "out", "new", false);
  REQUIRE_FALSE(refused);
  CHECK(to_string(refused.error()).find("parent folder does not exist") != std::string::npos);
}

TEST_CASE("a folder that others joined is committed with their files") {
  const scratch_folder scratch;
  auto made = staged_output::directory(scratch.path / "out").value();
  {
    auto joined = staged_output::join(made.folder()).value();
    const auto file = joined.add_file("__1_0.distcp").value();
    REQUIRE(joined.write(file, 0, bytes_of("theirs")));
    REQUIRE(joined.prepare());
    joined.release();
  }
  const auto token = made.add_file("token").value();
  const auto file = made.add_file("__0_0.distcp").value();
  REQUIRE(made.write(file, 0, bytes_of("ours")));
  REQUIRE(made.remove_file(token));
  REQUIRE(made.commit());
  CHECK(text_of(scratch.path / "out" / "__1_0.distcp") == "theirs");
  CHECK(text_of(scratch.path / "out" / "__0_0.distcp") == "ours");
  CHECK_FALSE(fs::exists(scratch.path / "out" / "token"));
}

TEST_CASE("whoever joined and gives up takes the folder away, and then it cannot be committed") {
  const scratch_folder scratch;
  REQUIRE(save(scratch.path / "out", "old", false));
  {
    auto made = staged_output::directory(scratch.path / "out", {.overwrite = true, .may_replace = holds_one_checkpoint})
                    .value();
    REQUIRE(made.add_file("__0_0.distcp"));
    {
      const auto joined = staged_output::join(made.folder()).value();
    }
    CHECK(entries_of(scratch.path) == 1);
    CHECK_FALSE(made.commit());
  }
  CHECK(text_of(scratch.path / "out" / "__0_0.distcp") == "old");
  CHECK(entries_of(scratch.path) == 1);
  CHECK_FALSE(staged_output::join(scratch.path / "nowhere"));
}
