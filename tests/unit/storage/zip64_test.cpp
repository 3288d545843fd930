// SPDX-License-Identifier: Apache-2.0
// Tests the ZIP reader on numbers that ZIP64 records and fields hold: those that writers make, contradictions, and
// archives on several disks. Archives that PyTorch's form has are in torch_file's zip_test.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.storage;

using namespace shardmesh;

namespace {

constexpr std::uint64_t none32 = 0xffffffff, none16 = 0xffff;  // the number is in a ZIP64 field
constexpr std::uint64_t size = 5;                              // of the record's data, "hello"

std::string number(std::uint64_t value, int width) {
  std::string bytes;
  for (int i = 0; i < width; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

std::string numbers(std::initializer_list<std::uint64_t> values) {
  std::string bytes;
  for (const std::uint64_t value : values) bytes += number(value, 8);
  return bytes;
}

/// An extra field, by default of ZIP64.
std::string field(const std::string& content, std::uint64_t kind = 1) {
  return number(kind, 2) + number(content.size(), 2) + content;
}

/// The numbers of an archive of one stored record, "a".
struct archive {
  std::uint64_t local_compressed = size, local_size = size;
  std::string local_extra{};
  std::uint64_t compressed = size, size_bytes = size, disk = 0, offset = 0;
  std::string extra{};
  std::optional<std::uint64_t> flags{};
  std::uint64_t attributes = 0;  // external ones
};

std::string record_of(const archive& made) {
  const std::string common = number(made.flags.value_or(0), 2) + number(0, 2) + number(0, 4);
  return "PK\3\4" + number(45, 2) + common + number(0, 4) + number(made.local_compressed, 4) +
         number(made.local_size, 4) + number(1, 2) + number(made.local_extra.size(), 2) + "a" + made.local_extra +
         "hello";
}

std::string directory_of(const archive& made) {
  const std::string common = number(made.flags.value_or(0), 2) + number(0, 2) + number(0, 4);
  return "PK\1\2" + number(45, 2) + number(45, 2) + common + number(0, 4) + number(made.compressed, 4) +
         number(made.size_bytes, 4) + number(1, 2) + number(made.extra.size(), 2) + number(0, 2) +
         number(made.disk, 2) + number(0, 2) + number(made.attributes, 4) + number(made.offset, 4) + "a" + made.extra;
}

/// The end records. Each can be changed.
struct ends {
  std::uint64_t disk = 0, directory_disk = 0, records_here = 1, records = 1;
  std::uint64_t wide_length = 44, wide_disk = 0, wide_directory_disk = 0, wide_records_here = 1, wide_records = 1;
  std::uint64_t locator_disk = 0, disks = 1;
  std::int64_t locator_shift = 0;
  std::string gap{};  // between the ZIP64 end record and its locator
};

std::string end_of(const ends& end, std::size_t length, std::size_t offset) {
  return "PK\5\6" + number(end.disk, 2) + number(end.directory_disk, 2) + number(end.records_here, 2) +
         number(end.records, 2) + number(length, 4) + number(offset, 4) + number(0, 2);
}

std::string bytes_of(const archive& made) {
  const std::string record = record_of(made), directory = directory_of(made);
  return record + directory + end_of({}, directory.size(), record.size());
}

std::string bytes_of(const ends& end) {
  const std::string record = record_of({}), directory = directory_of({});
  const std::uint64_t at = record.size() + directory.size();
  return record + directory + "PK\6\6" + number(end.wide_length, 8) + number(45, 2) + number(45, 2) +
         number(end.wide_disk, 4) + number(end.wide_directory_disk, 4) + number(end.wide_records_here, 8) +
         number(end.wide_records, 8) + number(directory.size(), 8) + number(record.size(), 8) + end.gap + "PK\6\7" +
         number(end.locator_disk, 4) + number(at + static_cast<std::uint64_t>(end.locator_shift), 8) +
         number(end.disks, 4) + end_of(end, directory.size(), record.size());
}

result<zip_directory> read(const std::string& bytes) {
  return zip_directory::read(memory_source(std::as_bytes(std::span(bytes)), "some.zip"));
}

std::string refused(const std::string& bytes) {
  const auto directory = read(bytes);
  if (directory) return "it is read";
  CHECK(directory.error().code == errc::bad_format);
  return to_string(directory.error());
}

/// Returns the problem of an archive, or "" when its record has the right numbers.
std::string problem_of(const std::string& bytes) {
  const auto directory = read(bytes);
  if (!directory) return to_string(directory.error());
  const zip_record* const record = directory->find("a");
  if (directory->records().size() != 1 || record == nullptr) return "it has other records";
  const auto number_of_bytes = static_cast<std::int64_t>(size);
  if (record->size_bytes != number_of_bytes || record->compressed_bytes != number_of_bytes) return "it has other sizes";
  return record->header_offset == 0 ? "" : "it is elsewhere";
}

const std::string malformed = "some.zip: malformed ZIP archive: ";

std::string on_disks(const std::string& why) {
  return malformed + "it is not on a single disk: " + why +
         "; join the parts first: zip -s 0 PARTS.zip --out WHOLE.zip";
}

}  // namespace

TEST_CASE("an archive on several disks is refused, whichever of its numbers says so") {
  CHECK(problem_of(bytes_of(ends{})) == "");
  const std::vector<std::pair<ends, std::string>> cases{
      {{.disk = 1}, "the end record is on disk 1, and the directory on disk 0"},
      {{.directory_disk = 2}, "the end record is on disk 0, and the directory on disk 2"},
      {{.records_here = 0}, "the end record has 0 of 1 record on its disk"},
      {{.records = 3}, "the end record has 1 of 3 records on its disk"},
      {{.wide_disk = 1}, "the ZIP64 end record is on disk 1, and the directory on disk 0"},
      {{.wide_directory_disk = 1}, "the ZIP64 end record is on disk 0, and the directory on disk 1"},
      {{.wide_records_here = 0}, "the ZIP64 end record has 0 of 1 record on its disk"},
      {{.locator_disk = 4}, "the ZIP64 end record is on disk 4"},
      {{.disks = 0}, "the ZIP64 locator counts 0 disks"},
      {{.disks = 2}, "the ZIP64 locator counts 2 disks"},
  };
  for (const auto& [end, why] : cases) CHECK(refused(bytes_of(end)) == on_disks(why));
  const auto entry = [](const archive& made) { return refused(bytes_of(made)); };
  CHECK(entry({.disk = 1}) == on_disks("record \"a\" begins on disk 1"));
  CHECK(entry({.disk = none16}) == on_disks("record \"a\" begins on disk 65535"));
  CHECK(entry({.disk = none16, .extra = field(number(3, 4))}) == on_disks("record \"a\" begins on disk 3"));
}

TEST_CASE("a record with bytes that is marked as a folder is refused, because PyTorch's reader copies none of them") {
  const std::string why = malformed + "record \"a\" is marked as a folder, and has bytes";
  CHECK(refused(bytes_of(archive{.attributes = 0x10})) == why);
  CHECK(refused(bytes_of(archive{.attributes = 0x41ed0030})) == why);
  CHECK(problem_of(bytes_of(archive{.attributes = 0x81a40020})) == "");  // a file, as Unix tools mark it
}

TEST_CASE("a ZIP64 end record lies directly before its locator, and has the length of its only version") {
  const std::string apart = malformed + "the ZIP64 end record does not lie directly before its locator";
  CHECK(refused(bytes_of(ends{.locator_shift = -1})) == apart);
  CHECK(refused(bytes_of(ends{.locator_shift = 1})) == apart);
  CHECK(refused(bytes_of(ends{.gap = "another record"})) == apart);
  CHECK(refused(bytes_of(ends{.wide_length = 45})) == malformed + "the ZIP64 end record is damaged");
  CHECK(refused(bytes_of(ends{.wide_records_here = 2, .wide_records = 2})) ==
        malformed + "its two end records disagree");
  CHECK(problem_of(bytes_of(ends{.records_here = none16, .records = none16})) == "");
}

TEST_CASE("ZIP64 fields are read as writers make them") {
  const std::vector<std::pair<std::string, archive>> writers{
      {"Python, large", {.compressed = none32, .size_bytes = none32, .extra = field(numbers({size, size}))}},
      {"Python, large and far",
       {.compressed = none32, .size_bytes = none32, .offset = none32, .extra = field(numbers({size, size, 0}))}},
      {"PyTorch, far", {.offset = none32, .extra = field(numbers({0}))}},
      {"zip -fz", {.size_bytes = none32, .extra = field("Unix", 0x7875) + field(numbers({size}))}},
      {"Go", {.compressed = none32, .size_bytes = none32, .extra = field(numbers({size, size, 0}))}},
      {"miniz", {.size_bytes = none32, .extra = field(numbers({size, size}))}},
      {"a disk", {.size_bytes = none32, .disk = none16, .extra = field(numbers({size}) + number(0, 4))}},
      {"all numbers, none saturated", {.extra = field(numbers({size, size, 0}) + number(0, 4))}},
      {"a field twice",
       {.compressed = none32,
        .size_bytes = none32,
        .extra = field(numbers({size, size})) + field(numbers({size, size}))}},
      {"padding of less than a field", {.extra = std::string(3, '\0')}},
      {"Python, force_zip64",
       {.local_compressed = none32, .local_size = none32, .local_extra = field(numbers({size, size}))}},
      {"zip, streamed",
       {.local_compressed = none32, .local_size = none32, .local_extra = field(numbers({0, 0})), .flags = 8}},
      {"PyTorch, large, before its data",
       {.local_compressed = 0, .local_size = 0, .local_extra = field(numbers({size, 0})), .flags = 8}},
      {"a field after a long one",
       {.local_compressed = none32,
        .local_size = none32,
        .local_extra = field(std::string(4096, 'Z'), 0x4246) + field(numbers({size, size}))}},
  };
  for (const auto& [writer, made] : writers) {
    INFO(writer);
    CHECK(problem_of(bytes_of(made)) == "");
  }
}

TEST_CASE("a ZIP64 field that lacks a number, has another, or is cut off is refused with its record's name") {
  const std::string why =
      malformed + "the extra fields of record \"a\" are cut off, or a ZIP64 field does not fit the record's numbers";
  const std::vector<std::pair<std::string, archive>> cases{
      {"one number of two", {.compressed = none32, .size_bytes = none32, .extra = field(numbers({size}))}},
      {"half a number", {.size_bytes = none32, .extra = field(number(size, 4))}},
      {"half a disk", {.disk = none16, .extra = field(number(0, 2))}},
      {"another size", {.extra = field(numbers({size + 1}))}},
      {"another offset", {.compressed = none32, .size_bytes = none32, .extra = field(numbers({size, size, 9}))}},
      {"another disk", {.extra = field(number(3, 4))}},
      {"a number too many", {.size_bytes = none32, .extra = field(numbers({size, size, 0, 0}))}},
      {"another field of ZIP64", {.size_bytes = none32, .extra = field(numbers({size})) + field(numbers({9}))}},
      {"cut off", {.size_bytes = none32, .extra = number(1, 2) + number(9, 2) + number(size, 8)}},
      {"another kind of field that is cut off", {.extra = number(0x7875, 2) + number(5, 2) + "Unix"}},
  };
  for (const auto& [name, made] : cases) {
    INFO(name);
    CHECK(refused(bytes_of(made)) == why);
  }
}

TEST_CASE("saturated sizes of a local header are compared with the directory") {
  const std::string why = malformed + "the local header of record \"a\" does not match the directory";
  const auto local = [](const std::string& extra) {
    return refused(bytes_of(archive{.local_compressed = none32, .local_size = none32, .local_extra = extra}));
  };
  CHECK(local("") == why);
  CHECK(local(field(numbers({size + 1, size}))) == why);
  CHECK(local(field(numbers({size, size + 1}))) == why);
  CHECK(local(field(numbers({size}))) == why);
  CHECK(local(number(1, 2) + number(17, 2) + numbers({size, size})) == why);
  CHECK(local(field(std::string(4096, 'Z'), 0x4246) + field(numbers({9, size}))) == why);
}
