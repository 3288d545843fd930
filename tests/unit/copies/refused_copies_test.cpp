// SPDX-License-Identifier: Apache-2.0
// Tests that writers refuse everything that `verify` refuses, and that accepted copies are whole. Samples of every
// format are damaged by flipped bytes and cut ends; golden/corrupt adds its own. SHARDMESH_PROPERTY_RUNS=long flips
// twenty times as many bytes.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint_data.hpp"
#include "unusual_data.hpp"

import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import shardmesh.dcp;

using namespace shardmesh;
using namespace unusual_data;
namespace fs = std::filesystem;

namespace {

bool runs_long() {
  const char* text = std::getenv("SHARDMESH_PROPERTY_RUNS");
  return text != nullptr && std::string_view(text) == "long";
}

convert_options fast(target_format format) {
  return {.format = format, .durable = false, .threads = 1};
}

struct tally {
  int refused = 0, copied = 0;
};

enum class outcome { refused, copied };

// Runs one writer; its copy must be whole and equal.
template <class Write>
outcome run_writer(const fs::path& source, const fs::path& destination, const Write& write) {
  fs::remove_all(destination);
  auto reader = open_checkpoint(source);
  if (!reader) return outcome::refused;
  const result<save_report> report = write(**reader, destination);
  if (!report) {
    CHECK_FALSE(fs::exists(destination));
    return outcome::refused;
  }
  auto made = open_checkpoint(destination);
  REQUIRE(made);
  const verify_report checked = verify(**made, {.threads = 1}).value();
  for (const error& problem : checked.problems) CHECK(to_string(problem) == "");
  auto again = open_checkpoint(source).value();
  const diff_report difference = diff(whole_side(*again), whole_side(**made), {.threads = 1}).value();
  for (const auto& found : difference.differences) CHECK(found.key + ": " + found.text == "");
  return outcome::copied;
}

// Runs every writer on one source, which may be damaged.
void check_writers(const fs::path& source, const fs::path& work, tally& count) {
  bool is_sound = false;
  {
    auto reader = open_checkpoint(source);
    is_sound = reader && verify(**reader, {.threads = 1}).value().ok();
  }
  const auto run = [&](const std::string& name, const auto& write) {
    INFO("writer: " << name);
    const outcome got = run_writer(source, work / name, write);
    (got == outcome::copied ? count.copied : count.refused)++;
    if (!is_sound) CHECK(got == outcome::refused);
  };
  const auto to = [](target_format format) {
    return [format](checkpoint_reader& reader, const fs::path& destination) {
      return convert(reader, destination, fast(format));
    };
  };
  run("to_dcp", to(target_format::dcp));
  run("to.safetensors", to(target_format::safetensors));
  run("to_hf", to(target_format::hf));
  run("resharded", [](checkpoint_reader& reader, const fs::path& destination) {
    reshard_options options;
    options.mesh = device_mesh::make(std::array<std::int64_t, 1>{2}, {"dp"}).value();
    options.durable = false;
    options.threads = 1;
    return reshard(reader, destination, options);
  });
}

std::vector<fs::path> files_of(const fs::path& checkpoint) {
  if (!fs::is_directory(checkpoint)) return {checkpoint};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(checkpoint))
    if (entry.is_regular_file() && entry.file_size() > 0) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// Flips `flips` bytes of the sample at equal distances, and cuts each file twice.
tally damage_everywhere(const fs::path& sample, std::size_t flips) {
  tally count;
  const writable_copy copy(sample);
  check_writers(copy.path(), copy.beside(""), count);
  CHECK(count.copied > 0);
  std::size_t total = 0;
  for (const fs::path& file : files_of(copy.path())) total += fs::file_size(file);
  if (runs_long()) flips *= 20;
  const std::size_t step = std::max<std::size_t>(total / flips, 1) | 1;
  std::size_t skip = 0;
  for (const fs::path& file : files_of(copy.path())) {
    const std::size_t size = fs::file_size(file);
    std::size_t at = skip;
    for (; at < size; at += step) {
      const unsigned mask = 1U << (at % 8);
      INFO(file.string() << ": byte " << at << " with mask " << mask);
      flip(file, at, mask);
      check_writers(copy.path(), copy.beside(""), count);
      flip(file, at, mask);
    }
    skip = at - size;
    const std::vector<std::byte> whole = checkpoint_data::read(file);
    for (const std::size_t length : {size / 2, size - 1}) {
      INFO(file.string() << " cut to " << length);
      fs::resize_file(file, length);
      check_writers(copy.path(), copy.beside(""), count);
      std::ofstream(file, std::ios::binary)
          .write(reinterpret_cast<const char*>(whole.data()), static_cast<std::streamsize>(whole.size()));
    }
  }
  return count;
}

fs::path golden_case(const std::string& name) {
  return checkpoint_data::golden() / name / "checkpoint";
}

}  // namespace

TEST_CASE("writers accept no damaged DCP folder that verify refuses") {
  for (const std::string name : {"single_rank", "options_zstd", "dtensor_shard0_4"}) {
    INFO(name);
    CHECK(damage_everywhere(golden_case(name), 120).refused > 10);
  }
}

TEST_CASE("writers accept no damaged .pt file that verify refuses, whatever its tensors view") {
  for (const fs::path& file :
       {unusual() / "views.pt", unusual() / "views_deflated.pt", unusual() / "views_legacy.pt"}) {
    INFO(file.string());
    damage_everywhere(file, 150);
  }
}

TEST_CASE("writers accept no damaged folder of safetensors that verify refuses") {
  for (const std::string name : {"hf_sharded", "hf_consolidated"}) {
    INFO(name);
    CHECK(damage_everywhere(golden_case(name), 100).refused > 5);
  }
}

TEST_CASE("writers accept no damaged copy of what shardmesh wrote, wherever the damage is") {
  const writable_copy source(unusual() / "views.pt");
  {
    auto reader = open_checkpoint(source.path()).value();
    REQUIRE(convert(*reader, source.beside("ours"), fast(target_format::dcp)));
  }
  {
    auto reader = open_checkpoint(source.path()).value();
    REQUIRE(convert(*reader, source.beside("ours_hf"), fast(target_format::hf)));
  }
  for (const std::string name : {"ours", "ours_hf"}) {
    const tally count = damage_everywhere(source.beside(name), 150);
    // A checksum covers every byte: only the undamaged original is copied, once by each of four writers.
    CHECK(count.copied == 4);
  }
}

TEST_CASE("every sample of golden/corrupt that verify refuses is refused by every writer") {
  tally count;
  for (const auto& entry : fs::directory_iterator(checkpoint_data::golden() / "corrupt")) {
    if (!entry.is_directory()) continue;
    INFO(entry.path().string());
    const safetensors_files::temporary_folder work;
    check_writers(entry.path() / "checkpoint", work.path(), count);
  }
  CHECK(count.refused > 100);
}

TEST_CASE("a damaged record of an object or of an opaque tensor is found by verify and not copied") {
  const writable_copy copy(unusual() / "dcp");
  const auto problems = [&] {
    auto reader = open_checkpoint(copy.path()).value();
    return verify(*reader).value().problems;
  };
  REQUIRE(problems().empty());
  const fs::path file = copy.path() / "__0_0.distcp";
  std::vector<std::string> keys;
  auto reader = open_checkpoint(copy.path()).value();
  std::vector<std::pair<std::string, stored_range>> items;
  for (const object_entry& object : reader->contents().objects) items.emplace_back(object.key, object.place);
  for (const tensor_entry& tensor : reader->contents().tensors)
    if (tensor.key.starts_with("q"))
      items.emplace_back(tensor.key, reader->contents().chunk_places[static_cast<std::size_t>(tensor.first_chunk)]);
  REQUIRE(items.size() == 4);
  for (const auto& [key, place] : items) {
    // The last record before the directory of every archive. No reader needs it, but a copy includes it.
    std::vector<std::byte> bytes = checkpoint_data::read(file);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::size_t at = text.find("serialization_id", static_cast<std::size_t>(place.offset));
    REQUIRE(at != std::string_view::npos);
    REQUIRE(at < static_cast<std::size_t>(place.offset + place.length));
    const std::size_t digit = text.find_first_of("0123456789", at + 64);
    flip(file, digit, 1);
    INFO(key);
    const auto found = problems();
    REQUIRE(found.size() == 1);
    CHECK(found.front().code == errc::checksum_mismatch);
    CHECK(found.front().key == key);
    CHECK(found.front().file == file.string());
    auto damaged = open_checkpoint(copy.path()).value();
    const auto report = convert(*damaged, copy.beside("copy"), fast(target_format::dcp));
    REQUIRE_FALSE(report);
    REQUIRE(report.error().problem_count() == 1);
    CHECK(report.error().key == key);
    CHECK_FALSE(fs::exists(copy.beside("copy")));
    // The damaged entry does not stop a copy of the others.
    selection_options others;
    others.skip = {key_pattern::exactly(key)};
    convert_options rest = fast(target_format::dcp);
    rest.selection = others;
    CHECK(convert(*damaged, copy.beside("rest"), rest));
    fs::remove_all(copy.beside("rest"));
    flip(file, digit, 1);
  }
}

TEST_CASE("a storage inside an opaque object of a .pt file is held against its CRC-32") {
  const writable_copy copy(unusual() / "quantized.pt");
  auto whole = open_checkpoint(copy.path()).value();
  REQUIRE(verify(*whole).value().ok());
  // 4.0 as a double, the last element of settings.mean
  const std::size_t at = find_bytes(copy.path(), std::string_view("\0\0\0\0\0\0\x08\x40\0\0\0\0\0\0\x10\x40", 16));
  REQUIRE(at != std::string::npos);
  flip(copy.path(), at + 8, 4);
  auto reader = open_checkpoint(copy.path()).value();
  const auto problems = verify(*reader).value().problems;
  REQUIRE(problems.size() == 1);
  CHECK(problems.front().code == errc::checksum_mismatch);
  CHECK(problems.front().key.starts_with("settings"));
  CHECK(problems.front().file == copy.path().string());
}

TEST_CASE("verify counts the chunks that have no checksum") {
  auto reader = open_checkpoint(golden_case("hf_sharded")).value();
  const verify_report foreign = verify(*reader).value();
  CHECK(foreign.ok());
  CHECK(foreign.chunks > 0);
  CHECK(foreign.unchecked_chunks == foreign.chunks);
  auto dcp = open_checkpoint(golden_case("single_rank")).value();
  CHECK(verify(*dcp).value().unchecked_chunks == 0);
  CHECK(verify(*dcp).value().unchecked_objects == 0);
  auto legacy = open_checkpoint(unusual() / "views_legacy.pt").value();
  const verify_report old = verify(*legacy).value();
  CHECK(old.unchecked_chunks == old.chunks);
}

TEST_CASE("two pieces of one box are refused by verify and by every writer, equal or not") {
  const safetensors_files::temporary_folder folder;
  const auto piece = [](char first) {
    const std::string info = R"({\"w\":{\"saved_offsets\":[0,0]}})";
    std::string bytes = safetensors_files::bytes(R"({"__metadata__":{"DCP_SHARDING_INFO":")" + info +
                                                     R"("},"w":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]}})",
                                                 4);
    bytes[bytes.size() - 4] = first;
    return bytes;
  };
  fs::create_directory(folder.path() / "hf");
  for (const char first : {'\0', '\1'}) {
    folder.write("hf/shard-00001-model-00001-of-00001.safetensors", piece('\0'));
    folder.write("hf/shard-00002-model-00001-of-00001.safetensors", piece(first));
    auto reader = open_checkpoint(folder.path() / "hf").value();
    const auto problems = verify(*reader).value().problems;
    REQUIRE(problems.size() == 1);
    CHECK(problems.front().code == errc::overlap);
    CHECK(problems.front().key == "w");
    tally count;
    check_writers(folder.path() / "hf", folder.path(), count);
    CHECK(count.refused == 4);
  }
}

TEST_CASE("metadata with a dtype that is none is a problem that names the key") {
  output_tensor tensor;
  tensor.key = "w";
  tensor.type = dtype::undefined;
  const box whole = box::whole({2});
  tensor.chunks.push_back({whole, 0});
  const fragment all{whole, 0, 0, {0}, 0};
  tensor.bytes.from = distribution::from_fragments({2}, {&all, 1}, owner_space::items).value();
  const dcp::item_place place{"__0_0.distcp", 0, 8};
  const auto parsed = [&] {
    return dcp::parse_metadata(dcp::format_metadata({&tensor, 1}, {}, {&place, 1}, {}), ".metadata").value();
  };
  const dcp::metadata undefined = parsed();
  REQUIRE(undefined.problems.size() == 1);
  CHECK(to_string(undefined.problems.front()) ==
        ".metadata: w: has a dtype that PyTorch cannot load: expected a dtype of torch, found torch.undefined");
  tensor.properties.foreign_dtype = "quint4x2";
  const dcp::metadata quantized = parsed();
  CHECK(quantized.problems.empty());
  CHECK(quantized.warnings.empty());
  CHECK(quantized.contents.tensors.front().properties.foreign_dtype == "quint4x2");
  CHECK(quantized.contents.tensors.front().opaque_type == "torch.quint4x2");
}
