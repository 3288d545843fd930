// SPDX-License-Identifier: Apache-2.0
// Tests a checkpoint that is opened for one key: it describes and loads that key as the whole checkpoint does.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

import shardmesh.checkpoint_core;
import shardmesh.checkpoint;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

std::string place_text(const catalog& contents, const stored_range& place) {
  const std::string file = place.file < 0 ? "nowhere" : contents.files[static_cast<std::size_t>(place.file)];
  return file + ":" + std::to_string(place.offset) + ":" + std::to_string(place.length) + ":" +
         contents.transforms[static_cast<std::size_t>(place.transform)];
}

// Everything that a catalog records of a tensor.
std::string text_of(const catalog& contents, const tensor_entry& tensor) {
  const stored_properties& p = tensor.properties;
  std::string text = tensor.key + " " + to_string(tensor.where) + " " + to_string(tensor.type) +
                     to_string(tensor.shape) + p.layout + std::to_string(p.requires_grad) +
                     std::to_string(p.pin_memory) + std::to_string(p.memory_format) + p.foreign_dtype +
                     (p.strides ? to_string(*p.strides) : "") + tensor.opaque_type;
  for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk)
    text += "\n" + to_string(contents.chunk_box(tensor, chunk)) + " " +
            place_text(contents, contents.chunk_places[static_cast<std::size_t>(chunk)]);
  return text;
}

std::vector<std::byte> bytes_of(const host_tensor& tensor) {
  return {tensor.bytes().begin(), tensor.bytes().end()};
}

}  // namespace

TEST_CASE("opened for one key, a checkpoint has this entry as the whole one has it, and loads the same") {
  std::size_t alone = 0, entries = 0;
  for (const auto& folder : fs::directory_iterator(SHARDMESH_TEST_DATA "/golden")) {
    const fs::path path = folder.path() / "checkpoint";
    const auto whole = fs::exists(path) ? open_checkpoint(path) : result<std::unique_ptr<checkpoint_reader>>{nullptr};
    if (!whole || *whole == nullptr) continue;
    const catalog& all = (*whole)->contents();
    for (const tensor_entry& tensor : all.tensors) {
      INFO(path.string() << " " << tensor.key);
      const auto one = open_checkpoint(path, {.only_keys = {tensor.key}}).value();
      const tensor_entry* const found = one->contents().find(tensor.key);
      REQUIRE(found != nullptr);
      CHECK(text_of(one->contents(), *found) == text_of(all, tensor));
      CHECK(one->problems().empty());
      CHECK(one->warnings().empty());
      ++entries;
      alone += one->contents().tensors.size() == 1 && one->contents().objects.empty();
      const auto loaded = load_tensor(*one, tensor.key), expected = load_tensor(**whole, tensor.key);
      REQUIRE(loaded.has_value() == expected.has_value());
      if (loaded) CHECK(bytes_of(*loaded) == bytes_of(*expected));
    }
    for (const object_entry& object : all.objects) {
      INFO(path.string() << " " << object.key);
      const auto one = open_checkpoint(path, {.only_keys = {object.key, "nobody"}}).value();
      const object_entry* const found = one->contents().find_object(object.key);
      REQUIRE(found != nullptr);
      CHECK(found->where == object.where);
      CHECK(place_text(one->contents(), found->place) == place_text(all, object.place));
    }
  }
  CHECK(entries > 200);
  CHECK(alone > entries / 2);
}
