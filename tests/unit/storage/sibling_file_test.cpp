// SPDX-License-Identifier: Apache-2.0
// References to files of a folder beside a checkpoint's folder: which names are references, what they may reach, and
// their ranges in a record of checksums.
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <optional>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

import shardmesh.digest;
import shardmesh.storage;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

const sibling_file item{"step-90", "__0_0.distcp"};

std::string digits_of(std::string_view text) {
  return to_hex(xxh3(std::as_bytes(std::span(text.data(), text.size()))));
}

// The folders "step-90", with one file, and "step-100", which is empty.
struct two_steps {
  scratch_folder scratch;
  fs::path file = scratch / "step-90" / "__0_0.distcp", folder = scratch / "step-100";

  two_steps() {
    fs::create_directories(scratch / "step-90");
    fs::create_directories(folder);
    write("0123456789");
  }
  void write(std::string_view text) const { std::ofstream(file, std::ios::binary) << text; }
  std::vector<error> problems(std::string_view digits) const {
    file_pool pool;
    const std::vector<checksum_range> ranges{{to_string(item), 2, 4, std::string(digits)}};
    return check_checksums(folder, ranges, pool);
  }
};

}  // namespace

TEST_CASE("a reference is followed from a local path, and not from a URL") {
  const auto refused = check_sibling("s3://bucket/run/step-100", item);
  REQUIRE(!refused);
  CHECK(to_string(refused.error()) ==
        "s3://bucket/run/step-100: refers to a file of another folder, which is read only from a local path: found "
        "../step-90/__0_0.distcp; copy it and step-90 into one local folder, and open the copy");
  file_pool pool;
  const std::vector<checksum_range> ranges{{to_string(item), 2, 4, std::string(32, '0')}};
  const std::vector<error> problems = check_checksums("s3://bucket/run/step-100", ranges, pool);
  REQUIRE(problems.size() == 1);
  CHECK(to_string(problems.front()) == to_string(refused.error()));
}

TEST_CASE("a reference is a .distcp file of a folder with the same parent, and nothing else") {
  CHECK(parse_sibling_file("../step-90/__0_0.distcp") == item);
  CHECK(to_string(item) == "../step-90/__0_0.distcp");
  CHECK(parse_sibling_file("../a b\\c/...distcp") == sibling_file{"a b\\c", "...distcp"});
  for (const std::string_view other : {"",
                                       "x.distcp",
                                       "step-90/x.distcp",
                                       "/step-90/x.distcp",
                                       "../x.distcp",
                                       "..//x.distcp",
                                       "../a//x.distcp",
                                       "../a/b/x.distcp",
                                       "../../x.distcp",
                                       "../../a/x.distcp",
                                       "../a/../x.distcp",
                                       "../a/..",
                                       ".././x.distcp",
                                       "./../a/x.distcp",
                                       "a/../b/x.distcp",
                                       "../.ssh/id_rsa",
                                       "../a/.metadata",
                                       "../a/x.distcp/",
                                       "../a/x.distcp.pt",
                                       "../a/",
                                       "..",
                                       "../",
                                       "..\\a\\x.distcp"}) {
    INFO(other);
    CHECK_FALSE(parse_sibling_file(other));
  }
  CHECK_FALSE(parse_sibling_file(std::string_view("../a\0b/x.distcp", 15)));
  CHECK_FALSE(parse_sibling_file(std::string_view("../a/\0.distcp", 13)));
}

TEST_CASE("a reference reaches a regular file through plain names, and follows no link") {
  const two_steps made;
  CHECK(check_sibling(made.folder, item));
  CHECK(check_sibling(made.folder / "", item));
  fs::create_directory_symlink(made.folder, made.scratch / "link");
  CHECK(check_sibling(made.scratch / "link", item));  // beside the real folder
  const auto code_of = [&](const sibling_file& other) {
    const auto done = check_sibling(made.folder, other);
    if (done) return errc::ok;
    CHECK(done.error().file.starts_with((fs::canonical(made.scratch.path) / other.folder).string()));
    return done.error().code;
  };
  CHECK(code_of({"step-80", "__0_0.distcp"}) == errc::bad_format);
  CHECK(code_of({"step-90", "__1_0.distcp"}) == errc::bad_format);
  fs::create_directory_symlink("step-90", made.scratch / "best");
  CHECK(code_of({"best", "__0_0.distcp"}) == errc::unsafe_path);
  fs::create_symlink("__0_0.distcp", made.scratch / "step-90" / "other.distcp");
  CHECK(code_of({"step-90", "other.distcp"}) == errc::unsafe_path);
  fs::create_directory(made.scratch / "step-90" / "folder.distcp");
  CHECK(code_of({"step-90", "folder.distcp"}) == errc::bad_format);
  REQUIRE(::mkfifo((made.scratch / "step-90" / "pipe.distcp").c_str(), 0600) == 0);
  CHECK(code_of({"step-90", "pipe.distcp"}) == errc::bad_format);
  CHECK(code_of({"step-90/__0_0.distcp", "x.distcp"}) == errc::bad_format);
}

TEST_CASE("a record may name referred files, and no other file outside of its folder") {
  const auto parsed = [](const std::string& file) {
    const std::vector<checksum_range> ranges{{file, 0, 1, std::string(32, '0')}};
    return parse_checksums(format_checksums(ranges));
  };
  const auto good = parsed("../step-90/__0_0.distcp");
  REQUIRE(good);
  CHECK(good->front().file == "../step-90/__0_0.distcp");
  for (const std::string bad : {"../x", "../step-90/model.pt", "a/b", "/etc/passwd", "..", "../../a/b.distcp"}) {
    INFO(bad);
    const auto refused = parsed(bad);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::unsafe_path);
    CHECK(refused.error().found == bad);
  }
}

TEST_CASE("referred ranges are compared with their checksums, and their file may be longer but not shorter") {
  const two_steps made;
  CHECK(made.problems(digits_of("2345")).empty());
  const auto one_problem = [&](errc code, std::string_view text) {
    const std::vector<error> found = made.problems(digits_of("2345"));
    REQUIRE(found.size() == 1);
    CHECK(found[0].code == code);
    INFO(to_string(found[0]));
    CHECK(found[0].message.find(text) != std::string::npos);
    CHECK(found[0].file.ends_with("step-90/__0_0.distcp"));
  };
  made.write("01234#6789");
  one_problem(errc::checksum_mismatch, "bytes 2 to 6 differ");
  made.write("01234");
  one_problem(errc::checksum_mismatch, "is shorter than");
  fs::remove(made.file);
  one_problem(errc::bad_format, "the file is missing");
  fs::remove_all(made.file.parent_path());
  const std::vector<error> found = made.problems(digits_of("2345"));
  REQUIRE(found.size() == 1);
  CHECK(found[0].message.find("the folder is missing") != std::string::npos);
}

TEST_CASE("in the record of several checkpoints, a reference belongs to the checkpoint that makes it") {
  const two_steps made;
  file_pool pool;
  const std::vector<checksum_range> ranges{{"step-100/" + to_string(item), 2, 4, digits_of("2345")}};
  CHECK(check_checksums(made.scratch.path, ranges, pool).empty());
  made.write("01234#6789");
  CHECK(check_checksums(made.scratch.path, ranges, pool).size() == 1);
}
