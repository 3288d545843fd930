// SPDX-License-Identifier: Apache-2.0
// Tests a reader that reorders, renames, and drops another reader's entries and adds its own, against a list of each
// entry's origin.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint_core;

using namespace shardmesh;

namespace {

// Tensors of rows, one chunk per row, whose elements count up over the whole checkpoint. Records the entries that it is
// asked for.
class counted_reader final : public checkpoint_reader {
 public:
  counted_reader(std::vector<std::int64_t> rows, std::size_t objects) {
    path_ = "counted";
    contents_.files = {"a", "b"};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      tensor_entry made;
      made.key = "t" + std::to_string(i);
      made.where = shardmesh::path{made.key};
      made.type = dtype::int32;
      made.shape = {rows[i], width};
      contents_.tensors.push_back(std::move(made));
      for (std::int64_t row = 0; row < rows[i]; ++row)
        contents_.add_chunk({{row, 0}, {1, width}}, {static_cast<std::int32_t>(row % 2), 0, row, width * 4});
    }
    for (std::size_t i = 0; i < objects; ++i) {
      const std::string key = "o" + std::to_string(i);
      contents_.objects.push_back({key, shardmesh::path{key}, {}, 0});
    }
  }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    if (chunk < tensor.first_chunk || chunk >= tensor.first_chunk + tensor.chunk_count)
      return fail(errc::out_of_bounds, "a chunk of another tensor").with_key(tensor.key);
    std::vector<std::int32_t> values(width);
    std::iota(values.begin(), values.end(), chunk * static_cast<std::int32_t>(width));
    auto bytes = std::make_shared<std::vector<std::byte>>(width * 4);
    std::memcpy(bytes->data(), values.data(), bytes->size());
    rows_.push_back(bytes);
    auto made = std::make_shared<opened_chunk>();
    made->source = std::make_shared<const memory_source>(*bytes, "row");
    made->tensor = contiguous_stored_tensor(dtype::int32, {1, width}, 0, width * 4);
    return std::shared_ptr<const opened_chunk>(std::move(made));
  }
  result<object_value> read_object(std::size_t index) override {
    return object_value{"int", "builtins.int", std::to_string(index)};
  }
  result<std::vector<std::byte>> object_archive(std::size_t index) override {
    return std::vector<std::byte>(index, std::byte{1});
  }
  result<std::shared_ptr<const byte_source>> item_bytes(const stored_range& place) override {
    return std::shared_ptr<const byte_source>(std::make_shared<const memory_source>(
        std::span<const std::byte>(), contents_.files.at(static_cast<std::size_t>(place.file))));
  }
  result<std::vector<std::byte>> chunk_archive(const tensor_entry&, std::int32_t chunk) override {
    return std::vector<std::byte>(static_cast<std::size_t>(chunk), std::byte{2});
  }
  void identify_opaque_tensors() override {
    for (tensor_entry& tensor : contents_.tensors) tensor.opaque_type = "type of " + tensor.key;
  }
  check_outcome check_whole(std::span<const whole_entry> entries, const check_options&) override {
    asked.assign(entries.begin(), entries.end());
    return {};
  }
  result<std::optional<digest128>> content_of(const whole_entry& entry) override {
    return std::optional(digest128{entry.is_tensor ? 1U : 0U, entry.index});
  }

  static constexpr std::int64_t width = 3;
  std::vector<whole_entry> asked;

 private:
  std::vector<std::shared_ptr<std::vector<std::byte>>> rows_;
};

// The origin of each entry of the reader under test: an entry of the inner reader, or none.
using origins = std::vector<std::optional<std::size_t>>;

class shuffled_reader final : public forwarding_reader {
 public:
  shuffled_reader(checkpoint_reader& shown, const origins& tensors, const origins& objects) : forwarding_reader(shown) {
    for (const auto& from : tensors) {
      if (from) {
        add_whole_tensor(*from);
      } else {
        tensor_entry own;
        own.key = "own";
        own.where = shardmesh::path{"own"};
        own.type = dtype::int32;
        own.shape = {2, 1};
        add_tensor(std::move(own), std::nullopt);
        add_chunk({{0, 0}, {2, 1}}, {2, 0, 0, 8}, {});
      }
      contents_.tensors.back().key += "'";
    }
    clear_objects();
    for (const auto& from : objects)
      add_object(from ? shown.contents().objects[*from] : object_entry{"own", shardmesh::path{"own"}, {}, 0}, from);
  }
};

origins any_of(std::size_t count, std::mt19937_64& random) {
  origins made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = i;
  for (std::size_t i = 0; i < 3; ++i) made.emplace_back();
  std::shuffle(made.begin(), made.end(), random);
  made.resize(random() % (made.size() + 1));
  return made;
}

}  // namespace

TEST_CASE("what is asked of an entry that is shown is asked of its origin") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int64_t> rows(random() % 6);
    for (std::int64_t& count : rows) count = static_cast<std::int64_t>(random() % 4);
    counted_reader inner(rows, random() % 4);
    const origins tensors = any_of(rows.size(), random), objects = any_of(inner.contents().objects.size(), random);
    shuffled_reader shown(inner, tensors, objects);
    shown.identify_opaque_tensors();
    REQUIRE(shown.contents().tensors.size() == tensors.size());
    REQUIRE(shown.contents().objects.size() == objects.size());

    std::vector<whole_entry> all, wanted;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      all.push_back({true, i});
      const tensor_entry& tensor = shown.contents().tensors[i];
      const auto content = shown.content_of({true, i}).value();
      if (!tensors[i]) {
        CHECK(tensor.opaque_type.empty());
        CHECK(!content);
        CHECK(shown.open_chunk(tensor, tensor.first_chunk).error().code == errc::unsupported);
        CHECK(shown.chunk_archive(tensor, tensor.first_chunk).error().code == errc::unsupported);
        CHECK(shown.item_bytes({2, 0, 0, 8}).error().code == errc::unsupported);
        continue;
      }
      const tensor_entry& stored = inner.contents().tensors[*tensors[i]];
      wanted.push_back({true, *tensors[i]});
      CHECK(tensor.key == stored.key + "'");
      CHECK(tensor.opaque_type == stored.opaque_type);
      CHECK(content == digest128{1, *tensors[i]});
      REQUIRE(tensor.chunk_count == stored.chunk_count);
      chunk_source source(shown);
      for (std::int32_t chunk = 0; chunk < tensor.chunk_count; ++chunk) {
        const std::int32_t own = tensor.first_chunk + chunk, there = stored.first_chunk + chunk;
        CHECK(shown.contents().chunk_box(tensor, own) == inner.contents().chunk_box(stored, there));
        std::vector<std::int32_t> read(counted_reader::width), expected(counted_reader::width);
        std::iota(expected.begin(), expected.end(), there * static_cast<std::int32_t>(counted_reader::width));
        const extents sizes{1, counted_reader::width};
        const tensor_view to{
            reinterpret_cast<std::byte*>(read.data()), dtype::int32, {}, sizes, contiguous_strides(sizes)};
        REQUIRE(source.read({0, own}, box::whole(sizes), to));
        CHECK(read == expected);
        CHECK(shown.chunk_archive(tensor, own).value().size() == static_cast<std::size_t>(there));
        const stored_range& place = shown.contents().chunk_places[static_cast<std::size_t>(own)];
        CHECK(shown.item_bytes(place).value()->name() == (chunk % 2 == 0 ? "a" : "b"));
      }
    }
    for (std::size_t i = 0; i < objects.size(); ++i) {
      all.push_back({false, i});
      all.push_back({false, i});  // the inner reader is asked only once
      if (!objects[i]) continue;
      wanted.push_back({false, *objects[i]});
      CHECK(shown.contents().objects[i].key == inner.contents().objects[*objects[i]].key);
      CHECK(shown.read_object(i).value().json == std::to_string(*objects[i]));
      CHECK(shown.object_archive(i).value().size() == *objects[i]);
    }
    static_cast<void>(shown.check_whole(all, {}));
    REQUIRE(inner.asked.size() == wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      CHECK(inner.asked[i].is_tensor == wanted[i].is_tensor);
      CHECK(inner.asked[i].index == wanted[i].index);
    }
  }
}

TEST_CASE("a reader that owns the one that it shows has its path and what is odd about it") {
  class owning_reader final : public forwarding_reader {
   public:
    explicit owning_reader(std::unique_ptr<checkpoint_reader> shown) : forwarding_reader(std::move(shown)) {
      add_whole_tensor(0);
    }
  };
  owning_reader shown(std::make_unique<counted_reader>(std::vector<std::int64_t>{1}, 2));
  CHECK(shown.path() == "counted");
  CHECK(shown.contents().files == std::vector<std::string>{"a", "b"});
  CHECK(shown.contents().objects.size() == 2);
  CHECK(shown.read_object(1).value().json == "1");
  CHECK(shown.open_chunk(shown.contents().tensors[0], 0));
  CHECK(&shown.stored() != &shown);
}
