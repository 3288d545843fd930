// SPDX-License-Identifier: Apache-2.0
// Tests items of golden checkpoints: tensors, objects, versions of PyTorch, and the number of reads.
#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <checkpoint_data.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

import shardmesh.torch_file;

using namespace shardmesh;
namespace data = checkpoint_data;

namespace {

/// The bytes of one golden item.
std::vector<std::byte> bytes_of_item(const data::item& item) {
  const auto file = data::read(item.file);
  return {file.begin() + item.offset, file.begin() + item.offset + item.length};
}

/// The item of `fqn` in a case.
data::item find_item(const std::string& case_name, const std::string& fqn) {
  for (const data::item& item : data::items())
    if (item.case_name == case_name && item.fqn == fqn) return item;
  FAIL("no item " << fqn << " in " << case_name);
  return {};
}

/// A source that counts its reads.
class counting_source final : public byte_source {
 public:
  explicit counting_source(std::span<const std::byte> bytes) : inner_(bytes, "counted") {}
  std::int64_t size_bytes() const override { return inner_.size_bytes(); }
  std::string name() const override { return inner_.name(); }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
    ++reads;
    read_bytes += static_cast<std::int64_t>(out.size());
    return inner_.read(offset, out);
  }
  mutable int reads = 0;
  mutable std::int64_t read_bytes = 0;

 private:
  memory_source inner_;
};

// Reduces values that are not plain data to their type, without PyTorch's repr and our members.
nlohmann::json types_only(nlohmann::json value) {
  if (value.is_object() && value.contains("$other")) return {{"$other", value["$other"]}};
  if (value.is_structured())
    for (auto& part : value) part = types_only(part);
  return value;
}

}  // namespace

TEST_CASE("every golden item opens, and a tensor item has one tensor that fills its storage") {
  const auto items = data::items();
  REQUIRE(items.size() > 1000);
  for (const data::item& where : items) {
    INFO(where.case_name << " " << where.fqn);
    const auto bytes = bytes_of_item(where);
    const memory_source source(bytes, where.file.string());
    const auto item = torch_file::item::open(source);
    if (!item) FAIL(to_string(item.error()));
    CHECK(item->format() == torch_file::item_format::zip);
    if (where.is_object) continue;
    REQUIRE(item->tensors().size() == 1);
    CHECK(item->tensor_of(item->root()) == 0);
    const torch_file::tensor& tensor = item->tensors()[0];
    const torch_file::storage& storage = item->storages()[tensor.storage];
    CHECK(storage.method == 0);
    CHECK((storage.size_bytes == 0 || storage.offset % 64 == 0));
    CHECK(storage.offset + storage.stored_bytes <= source.size_bytes());
  }
}

TEST_CASE("tensors that lie in one golden item have the bytes that PyTorch says") {
  std::map<std::string, nlohmann::json> expected;
  std::map<std::pair<std::string, std::string>, int> chunks;
  const auto items = data::items();
  for (const data::item& where : items) ++chunks[{where.case_name, where.fqn}];
  int compared = 0;
  for (const data::item& where : items) {
    if (where.is_object || chunks[{where.case_name, where.fqn}] != 1) continue;
    if (!expected.contains(where.case_name))
      expected[where.case_name] = data::read_json(data::golden() / where.case_name / "expected.json");
    const auto& tensors = expected[where.case_name]["tensors"];
    if (!tensors.contains(where.fqn)) continue;
    INFO(where.case_name << " " << where.fqn);
    const auto bytes = bytes_of_item(where);
    const memory_source source(bytes, where.file.string());
    const auto item = torch_file::item::open(source).value();
    const auto resolved = read_tensor(source, item, 0, 1 << 30).value();
    const auto& wanted = tensors[where.fqn];
    CHECK(std::string(name(item.tensors()[0].type)) == wanted["dtype"].get<std::string>());
    CHECK(std::vector<std::int64_t>(item.tensors()[0].sizes.begin(), item.tensors()[0].sizes.end()) ==
          wanted["shape"].get<std::vector<std::int64_t>>());
    if (wanted.value("is_conj", false)) CHECK(item.tensors()[0].conj);
    CHECK(sha256::hex_of(resolved) == wanted["sha256"].get<std::string>());
    ++compared;
  }
  CHECK(compared > 100);
}

TEST_CASE("every golden object has the type and the JSON value that PyTorch says") {
  std::map<std::string, nlohmann::json> expected;
  int compared = 0;
  for (const data::item& where : data::items()) {
    if (!where.is_object) continue;
    if (!expected.contains(where.case_name))
      expected[where.case_name] = data::read_json(data::golden() / where.case_name / "expected.json");
    const auto& objects = expected[where.case_name]["objects"];
    if (!objects.contains(where.fqn)) continue;
    INFO(where.case_name << " " << where.fqn);
    const auto bytes = bytes_of_item(where);
    const memory_source source(bytes, where.file.string());
    const auto item = torch_file::item::open(source).value();
    CHECK(classify(item, item.root()).type == objects[where.fqn]["type"].get<std::string>());
    const auto printed = nlohmann::json::parse(object_json(source, item, item.root()).value());
    CHECK(types_only(printed) == types_only(objects[where.fqn]["value"]));
    ++compared;
  }
  CHECK(compared > 100);
}

TEST_CASE("items of other PyTorch versions open") {
  for (const char* era : {"era_torch_1.13.1", "era_torch_2.1.2", "era_torch_2.4.1", "era_torch_2.15.0"}) {
    int opened = 0;
    for (const auto& file : std::filesystem::directory_iterator(data::golden() / era / "checkpoint")) {
      if (file.path().filename().string().find(".distcp") == std::string::npos) continue;
      const auto bytes = data::read(file.path());
      // Items follow each other without gaps: each ends with its end record.
      for (std::size_t begin = 0; begin < bytes.size();) {
        const auto rest = std::span(bytes).subspan(begin);
        const std::string_view text(reinterpret_cast<const char*>(rest.data()), rest.size());
        const std::size_t end = text.find(std::string_view("PK\5\6", 4));
        REQUIRE(end != std::string_view::npos);
        INFO(file.path() << " at " << begin);
        const memory_source source(rest.first(end + 22), file.path().string());
        const auto item = torch_file::item::open(source);
        if (!item) FAIL(to_string(item.error()));
        const auto printed = object_json(source, *item, item->root());
        if (!printed) FAIL(to_string(printed.error()));
        CHECK(nlohmann::json::accept(*printed));
        ++opened;
        begin += end + 22;
      }
    }
    CHECK(opened > 3);
  }
}

TEST_CASE("a small item is read at once, a large one in two reads") {
  const auto small = bytes_of_item(find_item("dtensor_shard0_4", "rows10"));
  const counting_source small_source(small);
  REQUIRE(torch_file::item::open(small_source));
  CHECK(small_source.reads == 1);

  const auto layout = torch_file::tensor_archive::make(dtype::float32, {1 << 20}).value();
  std::vector<std::byte> large(layout.prefix().begin(), layout.prefix().end());
  large.resize(large.size() + static_cast<std::size_t>(layout.data_bytes()));
  const auto suffix = layout.suffix(0);
  large.insert(large.end(), suffix.begin(), suffix.end());
  const counting_source large_source(large);
  REQUIRE(torch_file::item::open(large_source));
  CHECK(large_source.reads == 2);
  CHECK(large_source.read_bytes <= 16384);
}
