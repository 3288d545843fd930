// SPDX-License-Identifier: Apache-2.0
// A rank's view of a folder whose ranks saved without collectives, and the items that the merged view leaves out.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <map>
#include <optional>
#include <random_seed.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

import shardmesh.dcp;

using namespace shardmesh;

namespace {

std::string file_of(std::int64_t rank) {
  return "__" + std::to_string(rank) + "_0.distcp";
}

// The description of one rank. An item's content is a number, which is also its offset: items are equal when their
// contents are.
class saved_by {
 public:
  explicit saved_by(std::int64_t rank) { made_.contents.files.push_back(file_of(rank)); }

  saved_by& tensor(const std::string& key, const extents& shape,
                   const std::vector<std::pair<box, std::int64_t>>& chunks) {
    tensor_entry entry;
    entry.key = key;
    entry.where = path{key};
    entry.type = dtype::float32;
    entry.shape = shape;
    entry.first_chunk = static_cast<std::int32_t>(made_.contents.chunk_places.size());
    made_.contents.tensors.push_back(std::move(entry));
    for (const auto& [where, content] : chunks) made_.contents.add_chunk(where, {0, 0, content, 1});
    return *this;
  }
  saved_by& object(const path& where, std::int64_t content) {
    object_entry entry;
    entry.key = dotted(where);
    entry.where = where;
    entry.place = {0, 0, content, 1};
    made_.contents.objects.push_back(std::move(entry));
    return *this;
  }
  dcp::metadata take() { return std::move(made_); }

 private:
  dcp::metadata made_;
};

dcp::merge_rules rules_for(std::optional<std::int64_t> rank = {}) {
  dcp::merge_rules rules;
  rules.preferred = rank;
  rules.are_equal = [](const std::string&, const stored_range& at, const std::string&,
                       const stored_range& other) -> result<bool> { return at.offset == other.offset; };
  return rules;
}

// An item as "FILE:CONTENT"; "" if it has no place.
std::string item_of(const catalog& contents, const stored_range& place) {
  return place.file < 0 ? ""
                        : contents.files[static_cast<std::size_t>(place.file)] + ":" + std::to_string(place.offset);
}

std::map<box, std::string> chunks_of(const catalog& contents, const std::string& key) {
  std::map<box, std::string> found;
  const tensor_entry* const tensor = contents.find(key);
  for (std::int32_t i = 0; tensor && i < tensor->chunk_count; ++i)
    found[contents.chunk_box(*tensor, tensor->first_chunk + i)] =
        item_of(contents, contents.chunk_places[static_cast<std::size_t>(tensor->first_chunk + i)]);
  return found;
}

std::set<std::string> keys_of(const catalog& contents) {
  std::set<std::string> keys;
  for (const tensor_entry& tensor : contents.tensors) keys.insert(tensor.key);
  for (const object_entry& object : contents.objects) keys.insert(object.key);
  return keys;
}

std::multiset<std::string> items_of(const catalog& contents) {
  std::multiset<std::string> items;
  for (const stored_range& place : contents.chunk_places) items.insert(item_of(contents, place));
  for (const object_entry& object : contents.objects) items.insert(item_of(contents, object.place));
  return items;
}

const box low{{0}, {2}}, high{{2}, {2}}, whole{{0}, {4}};

}  // namespace

TEST_CASE("the items that a merged view leaves out are its copies, and the files of all ranks are listed") {
  std::vector<dcp::metadata> parts;
  for (std::int64_t rank = 0; rank < 3; ++rank)
    parts.push_back(
        saved_by(rank).tensor("w", {4}, {{whole, 7}}).object(path{"step"}, 8).object(path{"rng"}, 20 + rank).take());
  const dcp::metadata merged = dcp::merge_metadata(std::move(parts), rules_for());
  CHECK(merged.contents.files == std::vector<std::string>{file_of(0), file_of(1), file_of(2)});
  CHECK(merged.copies.files == merged.contents.files);
  CHECK(items_of(merged.contents) == std::multiset<std::string>{"", file_of(0) + ":7", file_of(0) + ":8"});
  // "rng" is a conflict, so the items of all ranks are left out.
  CHECK(items_of(merged.copies) == std::multiset<std::string>{file_of(0) + ":20", file_of(1) + ":21", file_of(1) + ":7",
                                                              file_of(1) + ":8", file_of(2) + ":22", file_of(2) + ":7",
                                                              file_of(2) + ":8"});
}

TEST_CASE("two ranks that describe one item have no copy of it") {
  std::vector<dcp::metadata> parts;
  for (int rank = 0; rank < 2; ++rank) parts.push_back(saved_by(0).tensor("w", {4}, {{whole, 7}}).take());
  const dcp::metadata merged = dcp::merge_metadata(std::move(parts), rules_for());
  CHECK(merged.copies.tensors.empty());
  CHECK(merged.contents.files == std::vector<std::string>{file_of(0)});
}

TEST_CASE("a rank's list has no elements of longer lists, and its other values no parts of other ranks") {
  const auto parts = [] {
    std::vector<dcp::metadata> made;
    made.push_back(saved_by(0)
                       .object(path{"list", 0}, 1)
                       .object(path{"list", 1}, 2)
                       .object(path{"empty", 0}, 3)
                       .object(path{"seen", "a"}, 4)
                       .object(path{"full"}, 5)
                       .take());
    made.push_back(saved_by(1)
                       .object(path{"list", 0}, 11)
                       .object(path{"empty"}, 12)
                       .object(path{"seen", "b"}, 13)
                       .object(path{"full", 0}, 14)
                       .take());
    return made;
  };
  const dcp::metadata first = dcp::merge_metadata(parts(), rules_for(0));
  CHECK(keys_of(first.contents) == std::set<std::string>{"list.0", "list.1", "empty.0", "seen.a", "seen.b", "full"});
  CHECK(first.notes ==
        std::vector<std::string>{
            "left out 2 entries of other ranks in lists and values that rank 0 saved itself: empty, full.0"});
  const dcp::metadata second = dcp::merge_metadata(parts(), rules_for(1));
  CHECK(keys_of(second.contents) == std::set<std::string>{"list.0", "empty", "seen.a", "seen.b", "full.0"});
  CHECK(second.notes ==
        std::vector<std::string>{"left out 3 entries of other ranks in lists and values that rank 1 saved itself: "
                                 "list.1, empty.0, full"});
  CHECK(second.copies.objects.empty());
}

TEST_CASE("boxes that only other ranks hold are read when these agree, and are a conflict when they do not") {
  const auto parts = [](std::int64_t of_third) {
    std::vector<dcp::metadata> made;
    made.push_back(saved_by(0).tensor("w", {4}, {{low, 1}}).take());
    made.push_back(saved_by(1).tensor("w", {4}, {{high, 2}}).take());
    made.push_back(saved_by(2).tensor("w", {4}, {{low, of_third}}).take());
    return made;
  };
  const dcp::metadata equal = dcp::merge_metadata(parts(1), rules_for(1));
  CHECK(chunks_of(equal.contents, "w") ==
        std::map<box, std::string>{{low, file_of(0) + ":1"}, {high, file_of(1) + ":2"}});
  CHECK(equal.conflicts.empty());
  const dcp::metadata different = dcp::merge_metadata(parts(9), rules_for(1));
  CHECK(chunks_of(different.contents, "w") == std::map<box, std::string>{{low, ""}, {high, file_of(1) + ":2"}});
  REQUIRE(different.conflicts.contains("w"));
  const error& conflict = different.conflicts.find("w")->second;
  CHECK(conflict.code == errc::disagreement);
  CHECK(conflict.boxes == std::vector<box>{low});
  CHECK(conflict.ranks == std::vector<std::int32_t>{0, 1, 2});
  CHECK(different.warnings.size() == 1);
  // The rank that holds the box reads its own.
  const dcp::metadata own = dcp::merge_metadata(parts(9), rules_for(2));
  CHECK(own.conflicts.empty());
  CHECK(chunks_of(own.contents, "w").at(low) == file_of(2) + ":9");
}

TEST_CASE("chunks that overlap a rank's own are left out and counted") {
  std::vector<dcp::metadata> parts;
  parts.push_back(saved_by(0).tensor("w", {4}, {{whole, 1}}).take());
  parts.push_back(saved_by(1).tensor("w", {4}, {{low, 2}}).take());
  const dcp::metadata merged = dcp::merge_metadata(std::move(parts), rules_for(1));
  CHECK(chunks_of(merged.contents, "w") == std::map<box, std::string>{{low, file_of(1) + ":2"}});
  CHECK(merged.notes == std::vector<std::string>{"left out 1 chunk of other ranks that overlaps chunks of rank 1: w"});
}

TEST_CASE("a rank's view of random replicas equals that of a model by elements") {
  for (const std::uint64_t seed : random_seed::seeds(300)) {
    INFO("SHARDMESH_SEED=" << seed);
    dice random(seed);
    const std::int64_t ranks = 2 + random.below(3), length = 1 + random.below(6);
    // Each rank cuts the tensor at places of its own, and holds some of the boxes.
    std::vector<std::vector<std::pair<box, std::int64_t>>> held(static_cast<std::size_t>(ranks));
    std::vector<dcp::metadata> parts;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      auto& chunks = held[static_cast<std::size_t>(rank)];
      for (std::int64_t begin = 0; begin < length;) {
        const std::int64_t size = 1 + random.below(std::min<std::int64_t>(2, length - begin));
        if (!random.one_in(3)) chunks.emplace_back(box{{begin}, {size}}, random.below(2));
        begin += size;
      }
      saved_by one(rank);
      if (!chunks.empty()) one.tensor("w", {length}, chunks);
      parts.push_back(one.take());
    }
    const std::int64_t reader = random.below(ranks);
    if (held[static_cast<std::size_t>(reader)].empty()) continue;
    const dcp::metadata merged = dcp::merge_metadata(std::move(parts), rules_for(reader));

    std::map<box, std::string> expected;
    std::map<box, std::set<std::int64_t>> contents;  // of other ranks
    std::map<box, std::int64_t> first;               // rank that holds it
    const auto& own = held[static_cast<std::size_t>(reader)];
    std::int64_t left_out = 0;
    for (const auto& [where, content] : own) expected[where] = file_of(reader) + ":" + std::to_string(content);
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      if (rank == reader) continue;
      for (const auto& [where, content] : held[static_cast<std::size_t>(rank)]) {
        const auto is_in_the_way = [&](const auto& mine) {
          return mine.first.offsets[0] < where.offsets[0] + where.sizes[0] &&
                 where.offsets[0] < mine.first.offsets[0] + mine.first.sizes[0];
        };
        const bool is_equal =
            std::any_of(own.begin(), own.end(), [&](const auto& mine) { return mine.first == where; });
        if (std::any_of(own.begin(), own.end(), is_in_the_way)) {
          left_out += is_equal ? 0 : 1;
          continue;
        }
        contents[where].insert(content);
        first.try_emplace(where, rank);
      }
    }
    bool is_disputed = false;
    for (const auto& [where, values] : contents) {
      is_disputed |= values.size() > 1;
      expected[where] = values.size() > 1 ? "" : file_of(first.at(where)) + ":" + std::to_string(*values.begin());
    }
    CHECK(chunks_of(merged.contents, "w") == expected);
    CHECK(merged.conflicts.contains("w") == is_disputed);
    CHECK(merged.notes.size() == (left_out > 0 ? 1U : 0U));
    if (left_out > 0) CHECK(merged.notes.front().starts_with("left out " + std::to_string(left_out) + " chunk"));
  }
}
