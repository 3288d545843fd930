// SPDX-License-Identifier: Apache-2.0
// Tests the ZIP reader: records of sound archives, contradictions of each kind, truncation, and damaged golden items.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <checkpoint_data.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

import shardmesh.torch_file;

using namespace shardmesh;
namespace data = checkpoint_data;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// An archive of two records.
std::vector<std::byte> two_records(std::string_view first = "a", std::string_view second = "b") {
  torch_file::archive archive("x");
  auto bytes = archive.record(first, bytes_of("hello"));
  const auto more = archive.record(second, bytes_of("world!"));
  bytes.insert(bytes.end(), more.begin(), more.end());
  const auto tail = archive.tail();
  bytes.insert(bytes.end(), tail.begin(), tail.end());
  return bytes;
}

std::size_t find(const std::vector<std::byte>& bytes, std::string_view what, std::size_t from = 0) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.find(what, from);
}

error problem_of(const std::vector<std::byte>& bytes) {
  const memory_source source(bytes, "some.zip");
  const auto directory = zip_directory::read(source);
  REQUIRE(!directory);
  return directory.error();
}

/// Counts reads.
class counted_source final : public byte_source {
 public:
  explicit counted_source(std::span<const std::byte> bytes) : inner_(bytes, "counted") {}
  std::int64_t size_bytes() const override { return inner_.size_bytes(); }
  std::string name() const override { return inner_.name(); }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
    ++reads, bytes += std::ssize(out);
    return inner_.read(offset, out);
  }
  mutable std::int64_t reads = 0, bytes = 0;

 private:
  memory_source inner_;
};

/// An archive of records with the given numbers of bytes.
std::vector<std::byte> records_of(const std::vector<std::size_t>& sizes) {
  torch_file::archive archive("x");
  std::vector<std::byte> bytes;
  const auto append = [&](const std::vector<std::byte>& more) { bytes.insert(bytes.end(), more.begin(), more.end()); };
  for (std::size_t i = 0; i < sizes.size(); ++i)
    append(archive.record("data/" + std::to_string(i), std::vector<std::byte>(sizes[i], std::byte{7})));
  append(archive.tail());
  return bytes;
}

/// The item of rows10 that a corrupt case damages: the one with index 0 in the metadata.
std::vector<std::byte> blob(const std::string& name) {
  const auto folder = data::golden() / "corrupt" / name / "checkpoint";
  const auto metadata = pickle::graph::parse(data::read(folder / ".metadata")).value();
  for (const pickle::pair entry : metadata.root().attribute("storage_data").pairs()) {
    if (entry.key.attribute("fqn").text() != "rows10") continue;
    const auto offset = entry.key.attribute("index").as_int();
    if (offset != 0) continue;
    const auto file = data::read(folder / std::string(*entry.value.attribute("relative_path").text()));
    const auto begin = entry.value.attribute("offset").as_int().value(),
               length = entry.value.attribute("length").as_int().value();
    return {file.begin() + begin, file.begin() + begin + length};
  }
  FAIL("no rows10 in " << name);
  return {};
}

}  // namespace

TEST_CASE("local headers of small records are read together, and the data of large ones is not") {
  const auto small = records_of(std::vector<std::size_t>(1000, 64));
  const counted_source many(small);
  const zip_directory directory = zip_directory::read(many).value();
  CHECK(directory.records().size() == 1002);
  CHECK(directory.find("x/data/999")->beginning == std::array{std::byte{7}, std::byte{7}});
  CHECK(many.reads < 12);
  std::vector<std::size_t> sizes(20, 100'000);
  sizes[3] = sizes[4] = sizes[5] = 64;
  const auto mixed = records_of(sizes);
  const counted_source large(mixed);
  REQUIRE(zip_directory::read(large));
  CHECK(large.reads <= 24);
  CHECK(large.bytes < 20'000);
}

TEST_CASE("of many small records, one whose local header contradicts the directory is refused by its name") {
  auto bytes = records_of(std::vector<std::size_t>(1000, 64));
  const std::size_t at = find(bytes, "x/data/500");
  bytes[at + 2] = std::byte{'D'};
  CHECK(problem_of(bytes).message.find("local header of record \"x/data/500\"") != std::string::npos);
}

TEST_CASE("records are found by name, with their sizes, data and checksum") {
  const auto bytes = two_records();
  const memory_source source(bytes, "some.zip");
  const auto directory = zip_directory::read(source).value();
  CHECK(directory.records().size() == 4);
  const zip_record* record = directory.find("x/b");
  REQUIRE(record != nullptr);
  CHECK(record->size_bytes == 6);
  CHECK(record->offset % 64 == 0);
  CHECK(record->beginning == std::array{std::byte{'w'}, std::byte{'o'}});
  const auto content = read_record(source, *record, 100).value();
  CHECK(std::string_view(reinterpret_cast<const char*>(content.data()), content.size()) == "world!");
  CHECK(directory.find("b") == nullptr);
  const auto longer = read_record(source, *record, 5);
  REQUIRE_FALSE(longer);
  CHECK(longer.error().code == errc::bad_format);
  CHECK(to_string(longer.error()) == "some.zip: record \"x/b\" is too large: expected at most 5 bytes, found 6");
}

TEST_CASE("an archive with two records of one name is refused") {
  const error problem = problem_of(two_records("a", "a"));
  CHECK(problem.code == errc::bad_format);
  CHECK(to_string(problem).find("some.zip") != std::string::npos);
  CHECK(to_string(problem).find("\"x/a\"") != std::string::npos);
}

TEST_CASE("an archive with two records whose names differ in case alone is refused") {
  CHECK(to_string(problem_of(two_records("a", "A"))) ==
        "some.zip: malformed ZIP archive: two records are named \"x/A\" apart from case");
}

TEST_CASE("arrays of NumPy whose names differ in case alone are two records") {
  const auto bytes = two_records("a.npy", "A.npy");
  CHECK(zip_directory::read(memory_source(bytes, "some.zip")).value().records().size() == 4);
  CHECK(to_string(problem_of(two_records("a.npy", "a.npy"))) ==
        "some.zip: malformed ZIP archive: two records are named \"x/a.npy\"");
}

TEST_CASE("a record that is stored as it is has one size") {
  auto bytes = two_records();
  const std::size_t entry = find(bytes, "PK\1\2", find(bytes, "PK\1\2") + 4);
  const std::uint32_t short_by_one = 5;
  std::memcpy(&bytes[entry + 24], &short_by_one, 4);
  CHECK(to_string(problem_of(bytes)) ==
        "some.zip: malformed ZIP archive: stored record \"x/b\" has two different sizes");
}

TEST_CASE("a local header with another compression method is refused") {
  auto bytes = two_records();
  const std::size_t header = find(bytes, "x/b") - 30;
  REQUIRE(bytes[header + 8] == std::byte{0});
  bytes[header + 8] = std::byte{8};
  CHECK(to_string(problem_of(bytes)) ==
        "some.zip: malformed ZIP archive: the local header of record \"x/b\" does not match the directory");
}

TEST_CASE("an archive whose comment holds another end record is refused") {
  auto bytes = two_records();
  const std::vector<std::byte> end(bytes.end() - 22, bytes.end());
  bytes[bytes.size() - 2] = std::byte{22};
  bytes.insert(bytes.end(), end.begin(), end.end());
  CHECK(problem_of(bytes).code == errc::bad_format);
}

TEST_CASE("an archive with a harmless comment is read") {
  auto bytes = two_records();
  bytes[bytes.size() - 2] = std::byte{5};
  for (const char c : std::string_view("hello")) bytes.push_back(static_cast<std::byte>(c));
  const memory_source source(bytes, "commented.zip");
  CHECK(zip_directory::read(source).value().records().size() == 4);
}

TEST_CASE("counts that disagree, records that overlap and bytes after the end are refused") {
  auto count = two_records();
  count[count.size() - 12] = std::byte{3};
  count[count.size() - 14] = std::byte{3};
  CHECK(problem_of(count).code == errc::bad_format);

  auto overlap = two_records();
  const std::size_t second = find(overlap, "PK\1\2", find(overlap, "PK\1\2") + 4);
  const std::uint32_t early = 10;
  std::memcpy(&overlap[second + 42], &early, 4);
  CHECK(problem_of(overlap).code == errc::bad_format);

  auto junk = two_records();
  junk.push_back(std::byte{0});
  CHECK(problem_of(junk).code == errc::bad_format);
}

TEST_CASE("a local header with another name is refused with its archive, or listed where that is wanted") {
  auto bytes = two_records();
  bytes[find(bytes, "x/b") + 2] = std::byte{'c'};
  const memory_source source(bytes, "some.zip");
  const error refused = zip_directory::read(source).error();
  CHECK(refused.code == errc::bad_format);
  CHECK(to_string(refused) ==
        "some.zip: malformed ZIP archive: the local header of record \"x/b\" does not match the directory");
  std::vector<error> contradictions;
  const auto directory = zip_directory::read(source, &contradictions).value();
  CHECK(contradictions == std::vector{refused});
  CHECK(directory.find("x/a")->offset > 0);
  CHECK(directory.find("x/b")->offset < 0);
  CHECK(read_record(source, *directory.find("x/b"), 100).error().code == errc::bad_format);
}

TEST_CASE("deflated data must have exactly the stated size, and a false claim allocates nothing") {
  // "hello hello hello" as raw deflate (Python zlib, level 9).
  const std::vector<std::byte> deflated = [] {
    std::vector<std::byte> out;
    for (const int b : {0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x57, 0xc8, 0x40, 0x90, 0x00})
      out.push_back(static_cast<std::byte>(b));
    return out;
  }();
  const auto plain = inflate(deflated, 17).value();
  CHECK(std::string_view(reinterpret_cast<const char*>(plain.data()), plain.size()) == "hello hello hello");
  CHECK(inflate(deflated, 16).error().code == errc::bad_format);
  CHECK(inflate(deflated, 18).error().code == errc::bad_format);
  CHECK(inflate(deflated, std::int64_t{1} << 50).error().code == errc::bad_format);
  CHECK(inflate({}, 0).error().code == errc::bad_format);
}

TEST_CASE("every truncation of an archive is an error, and no changed byte does harm") {
  const auto bytes = blob("blob_rezipped_valid");
  const auto original = two_records();
  for (const auto* whole : {&bytes, &original}) {
    for (std::size_t length = 0; length < whole->size(); ++length) {
      const memory_source source(std::span(*whole).first(length), "cut");
      CHECK_FALSE(zip_directory::read(source));
    }
    auto changed = *whole;
    for (std::size_t i = 0; i < changed.size(); ++i) {
      for (const std::byte flip : {std::byte{1}, std::byte{0x80}, std::byte{0xff}}) {
        changed[i] = (*whole)[i] ^ flip;
        const memory_source source(changed, "changed");
        if (const auto directory = zip_directory::read(source))
          for (const zip_record& record : directory->records()) static_cast<void>(read_record(source, record, 1 << 20));
        if (const auto item = torch_file::item::open(source)) {
          static_cast<void>(
              object_json(source, *item, item->root(), {.limit_bytes = 1 << 20, .tensor_limit_bytes = 1 << 20}));
        }
      }
      changed[i] = (*whole)[i];
    }
  }
}

TEST_CASE("damaged golden items are refused with the fitting error") {
  struct damage {
    const char* name;
    errc code;
  };
  for (const damage& which :
       {damage{"blob_storage_short", errc::bad_format}, damage{"blob_no_data_record", errc::bad_format},
        damage{"blob_no_pickle", errc::bad_format}, damage{"blob_stride_beyond_storage", errc::out_of_bounds},
        damage{"blob_storage_offset_negative", errc::bad_format}}) {
    INFO(which.name);
    const auto bytes = blob(which.name);
    const memory_source source(bytes, which.name);
    const auto item = torch_file::item::open(source);
    REQUIRE(!item);
    INFO(to_string(item.error()));
    CHECK(item.error().code == which.code);
    CHECK(item.error().file == which.name);
  }
  const auto flipped = blob("blob_crc");
  const memory_source source(flipped, "blob_crc");
  const auto item = torch_file::item::open(source).value();
  CHECK(read_tensor(source, item, 0, 1 << 20).error().code == errc::checksum_mismatch);
  CHECK(read_tensor(source, item, 0, 1 << 20, false).has_value());
}

TEST_CASE("unusual but sound golden items give the same bytes as the original") {
  const auto original = [] {
    const auto folder = data::golden() / "dtensor_shard0_4";
    for (const data::item& where : data::items())
      if (where.case_name == "dtensor_shard0_4" && where.fqn == "rows10") {
        const auto file = data::read(where.file);
        return std::vector<std::byte>(file.begin() + where.offset, file.begin() + where.offset + where.length);
      }
    return std::vector<std::byte>();
  }();
  const memory_source original_source(original, "original");
  const auto wanted = read_tensor(original_source, torch_file::item::open(original_source).value(), 0, 1 << 20).value();
  for (const char* name : {"blob_big_endian_valid", "blob_rezipped_valid", "blob_deflated"}) {
    INFO(name);
    const auto bytes = blob(name);
    const memory_source source(bytes, name);
    const auto item = torch_file::item::open(source);
    if (!item) FAIL(to_string(item.error()));
    CHECK(read_tensor(source, *item, 0, 1 << 20).value() == wanted);
  }
}

TEST_CASE("an evil item is inert: its root is no tensor") {
  const auto bytes = blob("blob_evil_pickle");
  const memory_source source(bytes, "evil");
  const auto item = torch_file::item::open(source);
  if (item) CHECK(item->tensors().empty());
}
