// SPDX-License-Identifier: Apache-2.0
// Compares the C interface's description of sound and damaged checkpoints with the library's.
#include <algorithm>
#include <c_answers.hpp>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <golden.hpp>
#include <memory>
#include <string>
#include <vector>

import shardmesh;
import shardmesh.core;

namespace fs = std::filesystem;
using namespace c_answers;

namespace {

shardmesh::box to_box(const shardmesh_box& b) {
  const auto rank = static_cast<std::size_t>(b.rank);
  return {shardmesh::extents(std::span(b.offsets, rank)), shardmesh::extents(std::span(b.sizes, rank))};
}

// Finds every folder and file of the golden data that may be a checkpoint.
std::vector<fs::path> checkpoints(bool damaged) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(golden::folder())) {
    const bool is_damaged = entry.path().parent_path().parent_path().filename() == "corrupt";
    if (entry.is_directory() && entry.path().filename() == "checkpoint" && is_damaged == damaged)
      found.push_back(entry.path());
    if (!damaged && entry.path().filename() == "expected.safetensors") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string line(const std::string& key, int dtype, const std::string& shape, bool grad, const std::string& opaque,
                 const std::string& foreign) {
  return key + " " + std::to_string(dtype) + " " + shape + (grad ? " grad " : " ") + opaque + " " + foreign + "\n";
}

std::string ours(const shardmesh::checkpoint_reader& reader) {
  const shardmesh::catalog& all = reader.contents();
  std::string text = all.version + " " + std::to_string(static_cast<int>(all.format)) + " " +
                     std::to_string(all.tensor_bytes()) + "\n";
  for (const shardmesh::tensor_entry& t : all.tensors) {
    text += line(t.key, static_cast<int>(t.type), to_string(t.shape), t.properties.requires_grad, t.opaque_type,
                 t.properties.foreign_dtype);
    for (std::int32_t i = t.first_chunk; i < t.first_chunk + t.chunk_count; ++i) {
      const shardmesh::stored_range& place = all.chunk_places[static_cast<std::size_t>(i)];
      text += "  " + to_string(all.chunk_box(t, i)) + " " +
              (place.file < 0 ? "" : all.files[static_cast<std::size_t>(place.file)]) + " " +
              std::to_string(place.offset) + " " + std::to_string(place.length) + "\n";
    }
  }
  for (const auto& object : all.objects) text += object.key + "\n";
  for (const auto& file : all.files) text += file + "\n";
  for (const auto& note : reader.notes()) text += note + "\n";
  return text;
}

std::string theirs(const c::checkpoint& from) {
  const shardmesh_checkpoint_summary all = from.summary();
  std::string text =
      c::to_string(all.version) + " " + std::to_string(all.format) + " " + std::to_string(all.tensor_bytes) + "\n";
  const std::vector<c::tensor_entry> tensors = from.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const c::tensor_entry& t = tensors[i];
    text += line(t.key, t.dtype, to_string(shardmesh::extents(std::span<const std::int64_t>(t.shape))), t.requires_grad,
                 t.opaque_type, t.foreign_dtype);
    for (const c::chunk_entry& chunk : from.chunks(i))
      text += "  " + to_string(to_box(chunk.where)) + " " + chunk.file + " " + std::to_string(chunk.offset) + " " +
              std::to_string(chunk.length) + "\n";
  }
  for (const auto& object : from.objects()) text += object + "\n";
  for (const auto& file : from.files()) text += file + "\n";
  for (const auto& note : from.notes()) text += note + "\n";
  return text;
}

}  // namespace

TEST_CASE("every golden checkpoint is described as the library describes it") {
  const std::vector<fs::path> all = checkpoints(false);
  REQUIRE(all.size() > 30);
  for (const fs::path& path : all) {
    CAPTURE(path);
    const auto reader = shardmesh::open_checkpoint(path).value();
    reader->identify_opaque_tensors();
    const c::checkpoint from = c::checkpoint::open(path.string());
    CHECK(theirs(from) == ours(*reader));
    CHECK(c_answers::theirs(from.warnings(), &to_box) == c_answers::ours(reader->warnings()));
    CHECK(c_answers::theirs(from.problems(), &to_box) == c_answers::ours(reader->problems()));
  }
}

TEST_CASE("every object of the golden checkpoints has the library's JSON") {
  std::size_t objects = 0;
  for (const fs::path& path : checkpoints(false)) {
    CAPTURE(path);
    const auto reader = shardmesh::open_checkpoint(path).value();
    const c::checkpoint from = c::checkpoint::open(path.string());
    for (std::size_t i = 0; i < reader->contents().objects.size(); ++i, ++objects) {
      const std::string& key = reader->contents().objects[i].key;
      CAPTURE(key);
      const auto value = reader->read_object(i);
      if (!value) {  // stored in an unknown way
        const auto refused = problems_of([&] { static_cast<void>(from.load_object(key)); });
        CHECK(c_answers::theirs(refused, &to_box) == c_answers::ours(std::vector{value.error()}));
        continue;
      }
      CHECK(from.load_object(key) == "{\"kind\":" + shardmesh::json_quoted(value->kind) + ",\"type\":" +
                                         shardmesh::json_quoted(value->type) + ",\"value\":" + value->json + "}");
    }
  }
  CHECK(objects > 100);
}

TEST_CASE("a damaged checkpoint is refused, or has the problems, that the library says, field by field") {
  std::size_t refused = 0, described = 0;
  for (const fs::path& path : checkpoints(true)) {
    CAPTURE(path);
    const auto reader = shardmesh::open_checkpoint(path);
    const auto refusals = problems_of([&] {
      const c::checkpoint from = c::checkpoint::open(path.string());
      CHECK(c_answers::theirs(from.problems(), &to_box) == c_answers::ours((*reader)->problems()));
      ++described;
    });
    if (reader) {
      CHECK(refusals.empty());
      continue;
    }
    ++refused;
    CHECK(c_answers::theirs(refusals, &to_box) == c_answers::ours(std::vector{reader.error()}));
  }
  CHECK(refused > 10);
  CHECK(described > 10);
}

TEST_CASE("a key that is missing is an error with the nearest key in its hint") {
  const fs::path path = golden::folder() / "fsdp2_tp_2x2/checkpoint";
  const c::checkpoint from = c::checkpoint::open(path.string());
  const std::string key = from.tensor_at(3).key;
  CHECK(from.find_tensor(key) == 3);
  const auto missing = problems_of([&] { from.find_tensor(key + "x"); });
  REQUIRE(missing.size() == 1);
  CHECK(missing[0].status == SHARDMESH_MISSING_KEY);
  CHECK(missing[0].key == key + "x");
  CHECK(missing[0].path == path.string());
  CHECK(missing[0].hint == "did you mean " + key + "?");
}
