// SPDX-License-Identifier: Apache-2.0
// Tests the list of a tar archive's files: long names, sizes, and everything refused. tests/oracle/nemo_files.py
// compares with Python's tarfile.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tar_files.hpp>
#include <vector>

import shardmesh.storage;

using namespace shardmesh;
namespace made = tar_files;

namespace {

result<std::vector<tar_member>> read(const std::string& bytes, const read_limits& limits = {}) {
  const memory_source source(std::as_bytes(std::span(bytes)), "some.tar");
  read_budget budget(limits);
  return read_tar(source, budget);
}

std::vector<tar_member> listed(const std::string& bytes) {
  const auto members = read(bytes);
  INFO((members ? "" : to_string(members.error())));
  REQUIRE(members);
  return *members;
}

std::string refused(const std::string& bytes) {
  const auto members = read(bytes);
  REQUIRE_FALSE(members);
  return to_string(members.error());
}

std::string refused_member(const made::header& header) {
  return refused(made::bytes_of(header) + made::end());
}

using list = std::vector<tar_member>;

}  // namespace

TEST_CASE("the files of a tar archive are sections of it, in its order") {
  const std::string bytes = made::member("./", "", '5') + made::member("./b.yaml", "name: b") +
                            made::member("a/", "", '5') + made::member("a//c", std::string(600, 'c')) +
                            made::member("empty", "", '\0') + made::end();
  CHECK(listed(bytes) == list{{"b.yaml", 1024, 7}, {"a/c", 2560, 600}, {"empty", 4096, 0}});
  CHECK(looks_like_tar(memory_source(std::as_bytes(std::span(bytes)), "some.tar")));
  CHECK(listed(made::end()).empty());
  CHECK(listed(made::member("x", "1") + made::end() + std::string(9000, '\0')).size() == 1);
}

TEST_CASE("long names are those of GNU, of pax, and of the prefix of ustar") {
  const std::string name = std::string(150, 'd') + "/" + std::string(150, 'n');
  const std::string gnu = made::member("././@LongLink", name + std::string(1, '\0'), 'L') + made::member("short", "1");
  CHECK(listed(gnu + made::end()) == list{{name, 1536, 1}});
  const std::string pax = made::member("./PaxHeaders/x", made::pax("mtime", "1.5") + made::pax("path", name), 'x') +
                          made::member("short", "1");
  CHECK(listed(pax + made::end()) == list{{name, 1536, 1}});
  CHECK(listed(made::bytes_of({.name = "n", .prefix = "a/b"}) + made::end()) == list{{"a/b/n", 512, 0}});
  CHECK(listed(made::bytes_of({.name = "n", .prefix = "a/b", .is_gnu = true}) + made::end()) == list{{"n", 512, 0}});
}

TEST_CASE("a size is octal, in base 256, or in a field of pax") {
  const std::string wide = std::string("\x80", 1) + std::string(10, '\0') + "\x03";
  CHECK(listed(made::bytes_of({.name = "a", .size_field = wide}) + made::padded("abc") + made::end()) ==
        list{{"a", 512, 3}});
  const std::string pax = made::member("x", made::pax("size", "3"), 'x') + made::bytes_of({.name = "a"}) +
                          made::padded("abc") + made::end();
  CHECK(listed(pax) == list{{"a", 1536, 3}});
}

TEST_CASE("links, devices, sparse files, and unknown members are refused by name") {
  const std::string begin = "some.tar: m: malformed tar archive: a member is ";
  CHECK(refused_member({.name = "m", .type = '1'}) == begin + "a hard link, which is not read");
  CHECK(refused_member({.name = "m", .type = '2'}) == begin + "a symbolic link, which is not read");
  CHECK(refused_member({.name = "m", .type = '3'}) == begin + "a device, which is not read");
  CHECK(refused_member({.name = "m", .type = '4'}) == begin + "a device, which is not read");
  CHECK(refused_member({.name = "m", .type = '6'}) == begin + "a pipe, which is not read");
  CHECK(refused_member({.name = "m", .type = 'S'}) == begin + "a sparse file, which is not read");
  CHECK(refused_member({.name = "m", .type = 'Z'}) == begin + "of an unknown kind, which is not read");
  const std::string sparse = made::member("m", made::pax("GNU.sparse.major", "1"), 'x') + made::member("n", "1");
  CHECK(refused(sparse + made::end()) == begin + "a sparse file, which is not read");
}

TEST_CASE("names that lead out of the archive, and two members of one name, are refused") {
  CHECK(read(made::member("/etc/x", "") + made::end()).error().code == errc::unsafe_path);
  CHECK(read(made::member("a/../../x", "") + made::end()).error().code == errc::unsafe_path);
  CHECK(read(made::member("..", "", '5') + made::end()).error().code == errc::unsafe_path);
  const std::string nul =
      made::member("x", made::pax("path", std::string_view("a\0b", 3)), 'x') + made::member("n", "1");
  CHECK(read(nul + made::end()).error().code == errc::unsafe_path);
  CHECK(refused(made::member("a", "1") + made::member("./a", "2") + made::end()) ==
        "some.tar: a: malformed tar archive: two members have this name");
}

TEST_CASE("sizes that leave the file or are no numbers are refused") {
  const std::string begin = "some.tar: m: malformed tar archive: ";
  CHECK(refused_member({.name = "m", .size = 1025}) ==
        begin + "the size of a member leaves the file: expected at most 1024 bytes, found 1025");
  CHECK(refused_member({.name = "m", .size_field = "00000000x00"}) == begin + "the size of a member is not a number");
  CHECK(refused_member({.name = "m", .size_field = std::string(12, '\xff')}) ==
        begin + "the size of a member is not a number");
  const std::string huge = made::member("m", made::pax("size", "99999999999999999999"), 'x');
  CHECK(refused(huge + made::end()) == begin + "the size of a member is not a number");
}

TEST_CASE("an archive that is damaged, cut off, or continues behind its end is refused") {
  const std::string whole = made::member("a", "1") + made::end();
  for (std::size_t length = 0; length < 1024 + 512; ++length)
    CHECK(read(whole.substr(0, length)).error().code == errc::bad_format);
  for (std::size_t byte = 0; byte < 512; ++byte) {
    if (byte >= 148 && byte < 156) continue;  // the sum itself may be written in several ways
    std::string changed = whole;
    changed[byte] = static_cast<char>(changed[byte] ^ 1);
    CHECK(refused(changed) == "some.tar: malformed tar archive: the header at byte 0 is damaged");
  }
  CHECK(refused(whole + made::member("b", "2")) == "some.tar: malformed tar archive: bytes follow its end");
  CHECK(refused(made::member("x", made::pax("path", "a"), 'x') + made::end()) ==
        "some.tar: malformed tar archive: a long name belongs to no member");
}

TEST_CASE("the fields of pax are checked") {
  for (const char* const fields : {"path=a\n", "99 path=a\n", "9 path=a ", "5 abc\n", "0 =\n", "-1 a=b\n"}) {
    INFO(fields);
    CHECK(refused(made::member("m", fields, 'x') + made::member("n", "") + made::end()) ==
          "some.tar: m: malformed tar archive: the fields of pax are damaged");
  }
}

TEST_CASE("names that would take too much memory exceed the budget") {
  std::string bytes;
  for (int i = 0; i < 100; ++i) bytes += made::member("member" + std::to_string(i), "");
  CHECK(is_beyond_limit(read(bytes + made::end(), {.built_bytes = 1000, .built_per_byte = 0}).error()));
}
