// SPDX-License-Identifier: Apache-2.0
// Tests what an overwrite may replace without a given rule: a folder whose files are all in its own record of
// checksums.
#include <sys/stat.h>
#include <catch2/catch_test_macros.hpp>

#include <filesystem>
#include <fstream>
#include <scratch_folder.hpp>
#include <string>
#include <string_view>
#include <vector>

import shardmesh.storage;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

void write_text(const fs::path& path, std::string_view text) {
  std::ofstream(path) << text;
}

// Writes "a" and "b", with their record.
void fill(const fs::path& folder) {
  write_text(folder / "a", "1");
  write_text(folder / "b", "2");
  const std::vector<checksum_range> ranges{{"a", 0, 1, std::string(32, '0')}, {"b", 0, 1, std::string(32, '1')}};
  write_text(folder / std::string(checksum_file_name), format_checksums(ranges));
}

// The entry that keeps the folder from being replaced, or "".
std::string kept_by(const fs::path& folder) {
  const auto seen = look_at(folder).value();
  const auto allowed = check_replaceable({}, folder, seen);
  CHECK((allowed || allowed.error().code == errc::destination_exists));
  return allowed ? "" : allowed.error().found;
}

}  // namespace

TEST_CASE("a folder is replaced when its record names every file, and else not, naming one") {
  const scratch_folder scratch;
  fill(scratch.path);
  CHECK(kept_by(scratch.path).empty());
  write_text(scratch.path / "thesis.txt", "years");
  CHECK(kept_by(scratch.path) == "thesis.txt");
  fs::remove(scratch.path / "thesis.txt");
  fs::create_directory(scratch.path / "a_folder");
  CHECK(kept_by(scratch.path) == "a_folder");
  fs::remove(scratch.path / "a_folder");
  fs::remove(scratch.path / std::string(checksum_file_name));
  CHECK(kept_by(scratch.path) == "a");
}

TEST_CASE("a rule that is given decides alone") {
  const scratch_folder scratch;
  write_text(scratch.path / "thesis.txt", "years");
  const auto seen = look_at(scratch.path).value();
  CHECK(check_replaceable([](const fs::path&, const destination_snapshot&) { return result<void>(); }, scratch.path,
                          seen));
  const auto refused = check_replaceable(
      [](const fs::path& folder, const destination_snapshot&) -> result<void> { return holds_more(folder, "x"); },
      scratch.path, seen);
  CHECK(refused.error() == holds_more(scratch.path, "x"));
}

TEST_CASE("without a rule, an output replaces what it knows and nothing else") {
  const scratch_folder scratch;
  const fs::path out = scratch.path / "out";
  fs::create_directory(out);
  fill(out);
  for (const bool is_known : {true, false}) {
    if (!is_known) write_text(out / "stranger", "");  // the replaced folder's record is gone
    auto made = staged_output::directory(out, {.overwrite = true, .durable = false});
    REQUIRE(made.has_value() == is_known);
    if (!is_known) {
      CHECK(made.error().code == errc::destination_exists);
      CHECK(made.error().found == "new");
    } else {
      REQUIRE(made->add_file("new"));
      REQUIRE(made->commit());
      CHECK(fs::exists(out / "new"));
      CHECK_FALSE(fs::exists(out / "a"));
    }
  }
}
