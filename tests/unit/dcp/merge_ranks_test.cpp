// SPDX-License-Identifier: Apache-2.0
// Merges the descriptions of several ranks: shards are merged, values of single ranks are not.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <scratch_folder.hpp>
#include <string>
#include <utility>
#include <vector>

import shardmesh.dcp;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

std::string file_of(std::int64_t rank) {
  return "__" + std::to_string(rank) + "_0.distcp";
}

// Rank R of `ranks` has row R of "shards", the whole of "rng", an object "step", and "size" with R + 1 elements.
dcp::metadata description_of(std::int64_t rank, std::int64_t ranks) {
  dcp::metadata made;
  catalog& contents = made.contents;
  contents.files.push_back(file_of(rank));
  const auto add = [&](const std::string& key, const extents& shape, const box& where, std::int64_t offset) {
    tensor_entry tensor;
    tensor.key = key;
    tensor.where = path{key};
    tensor.type = dtype::float32;
    tensor.shape = shape;
    tensor.first_chunk = static_cast<std::int32_t>(contents.chunk_places.size());
    contents.tensors.push_back(std::move(tensor));
    contents.add_chunk(where, {0, 0, offset, 100});
  };
  add("shards", {ranks, 2}, {{rank, 0}, {1, 2}}, 0);
  add("rng", {5}, {{0}, {5}}, 100);
  add("size", {rank + 1}, {{0}, {rank + 1}}, 200);
  object_entry step;
  step.key = "step";
  step.where = path{"loader", "step"};
  step.place = {0, 0, 300, 100};
  contents.objects.push_back(std::move(step));
  return made;
}

std::vector<dcp::metadata> all_of(std::int64_t ranks) {
  std::vector<dcp::metadata> parts;
  for (std::int64_t rank = 0; rank < ranks; ++rank) parts.push_back(description_of(rank, ranks));
  return parts;
}

// Compares items at equal offsets of different files; those of "rng" and "step" differ.
dcp::merge_rules rules_of(std::int64_t ranks) {
  dcp::merge_rules rules;
  for (std::int64_t rank = 0; rank < ranks; ++rank) rules.ranks.push_back(rank);
  rules.are_equal = [](const std::string& file, const stored_range& at, const std::string& other,
                       const stored_range&) -> result<bool> {
    return file == other || (at.offset != 100 && at.offset != 300);
  };
  return rules;
}

std::string file_of_chunk(const catalog& contents, const std::string& key) {
  const tensor_entry* const tensor = contents.find(key);
  REQUIRE(tensor);
  REQUIRE(tensor->chunk_count == 1);
  const std::int32_t file = contents.chunk_places[static_cast<std::size_t>(tensor->first_chunk)].file;
  return file < 0 ? "" : contents.files[static_cast<std::size_t>(file)];
}

}  // namespace

TEST_CASE("shards of all ranks are one tensor, whoever reads") {
  for (const bool is_rank : {false, true}) {
    dcp::merge_rules rules = rules_of(3);
    if (is_rank) rules.preferred = 1;
    const dcp::metadata merged = dcp::merge_metadata(all_of(3), rules);
    const tensor_entry* const shards = merged.contents.find("shards");
    REQUIRE(shards);
    CHECK(shards->chunk_count == 3);
    CHECK(merged.problems.empty());
  }
}

TEST_CASE("one tensor of different dtypes on two ranks is a conflict that names both dtypes") {
  std::vector<dcp::metadata> parts = all_of(2);
  for (tensor_entry& tensor : parts[1].contents.tensors)
    if (tensor.key == "shards") tensor.type = dtype::int64;
  const dcp::metadata merged = dcp::merge_metadata(std::move(parts), rules_of(2));
  const auto conflict = merged.conflicts.find("shards");
  REQUIRE(conflict != merged.conflicts.end());
  CHECK(conflict->second.code == errc::disagreement);
  CHECK(conflict->second.expected.starts_with("float32"));
  CHECK(conflict->second.found.starts_with("int64"));
}

TEST_CASE("a rank's own values win") {
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    dcp::merge_rules rules = rules_of(3);
    rules.preferred = rank;
    const dcp::metadata merged = dcp::merge_metadata(all_of(3), rules);
    CHECK(merged.conflicts.empty());
    CHECK(merged.warnings.empty());
    CHECK(file_of_chunk(merged.contents, "rng") == file_of(rank));
    CHECK(file_of_chunk(merged.contents, "size") == file_of(rank));
    CHECK(merged.contents.find("size")->shape == extents{rank + 1});
    const object_entry* const step = merged.contents.find_object("step");
    REQUIRE(step);
    CHECK(merged.contents.files[static_cast<std::size_t>(step->place.file)] == file_of(rank));
  }
}

TEST_CASE("without a rank, different values are a conflict that names the key and the ranks") {
  const dcp::metadata merged = dcp::merge_metadata(all_of(3), rules_of(3));
  CHECK(merged.conflicts.size() == 3);
  CHECK(merged.warnings.size() == 3);
  for (const char* const key : {"rng", "size", "step"}) {
    const auto conflict = merged.conflicts.find(key);
    REQUIRE(conflict != merged.conflicts.end());
    CHECK(conflict->second.code == errc::disagreement);
    CHECK(conflict->second.key == key);
    CHECK(conflict->second.ranks == std::vector<std::int32_t>{0, 1, 2});
  }
  CHECK(merged.conflicts.find("size")->second.expected == "float32 [1]");
  CHECK(merged.conflicts.find("size")->second.found == "float32 [2]");
  CHECK(file_of_chunk(merged.contents, "rng").empty());
  CHECK(merged.contents.find_object("step")->place.file == -1);
}

TEST_CASE("each rank's value has a key of its own, and a name of another entry is a problem") {
  std::vector<dcp::metadata> parts = all_of(2);
  object_entry other;
  other.key = "rng@1";
  other.place = {0, 0, 400, 100};
  parts[0].contents.objects.insert(parts[0].contents.objects.begin(), other);
  dcp::merge_rules rules = rules_of(2);
  rules.keys_at_ranks = true;
  const dcp::metadata merged = dcp::merge_metadata(std::move(parts), rules);
  CHECK(merged.conflicts.empty());
  CHECK(file_of_chunk(merged.contents, "rng@0") == file_of(0));
  CHECK(file_of_chunk(merged.contents, "size@1") == file_of(1));
  const object_entry* const step = merged.contents.find_object("step@1");
  REQUIRE(step);
  CHECK(step->where == path{"loader", "step@1"});
  REQUIRE(merged.problems.size() == 1);
  CHECK(merged.problems[0].code == errc::duplicate_key);
  CHECK(merged.problems[0].key == "rng@1");
  CHECK(merged.problems[0].ranks == std::vector<std::int32_t>{1});
  CHECK(merged.problems[0].hint == "read the checkpoint as one rank (--rank N, rank=N)");
  CHECK(merged.contents.find_object("rng@1"));
}

namespace {

// Ranks 0 and 2 have different values of row 0; ranks 1 and 3 have equal values of row 1.
std::vector<dcp::metadata> drifted_ranks() {
  std::vector<dcp::metadata> parts;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    dcp::metadata made;
    made.contents.files.push_back(file_of(rank));
    tensor_entry tensor;
    tensor.key = "w";
    tensor.where = path{"w"};
    tensor.type = dtype::float32;
    tensor.shape = {2, 2};
    made.contents.tensors.push_back(std::move(tensor));
    made.contents.add_chunk({{rank % 2, 0}, {1, 2}}, {0, 0, 0, 100});
    parts.push_back(std::move(made));
  }
  return parts;
}

dcp::merge_rules rules_of_drifted() {
  dcp::merge_rules rules = rules_of(4);
  rules.are_equal = [](const std::string& file, const stored_range&, const std::string& other,
                       const stored_range&) -> result<bool> {
    return file != file_of(0) && file != file_of(2) && other != file_of(0) && other != file_of(2);
  };
  return rules;
}

}  // namespace

TEST_CASE("the remedy of a conflict is not the option that is set") {
  dcp::merge_rules rules = rules_of_drifted();
  const auto hint_of = [&](const std::string& key) {
    const dcp::metadata merged = dcp::merge_metadata(drifted_ranks(), rules);
    const auto conflict = merged.conflicts.find(key);
    return conflict == merged.conflicts.end() ? "no conflict" : conflict->second.hint;
  };
  CHECK(hint_of("w") ==
        "read it as one of these ranks (--rank N, rank=N), or list it as KEY@RANK of each rank (--keys-at-ranks, "
        "keys_at_ranks=True)");
  rules.preferred = 1;
  CHECK(hint_of("w") == "read it as a rank that saved this box (--rank N, rank=N)");
  rules.preferred = 0;
  CHECK(hint_of("w") == "no conflict");
  rules.preferred.reset();
  rules.keys_at_ranks = true;
  CHECK(hint_of("w@1") ==
        "use the KEY@RANK of a rank that saved this box, or read the checkpoint as that rank (--rank N, rank=N)");
  CHECK(hint_of("w@0") == "no conflict");
}

TEST_CASE("entries of drifted ranks share the chunks of other ranks, and list which chunks repeat an item") {
  dcp::merge_rules rules = rules_of_drifted();
  rules.keys_at_ranks = true;
  const dcp::metadata merged = dcp::merge_metadata(drifted_ranks(), rules);
  // The files of each entry's chunks: its own first, then those of other ranks; "" where they differ.
  std::vector<std::vector<std::string>> files;
  for (const tensor_entry& tensor : merged.contents.tensors) {
    std::vector<std::string>& of_entry = files.emplace_back();
    for (std::int32_t i = tensor.first_chunk; i < tensor.first_chunk + tensor.chunk_count; ++i) {
      const std::int32_t file = merged.contents.chunk_places[static_cast<std::size_t>(i)].file;
      of_entry.push_back(file < 0 ? "" : merged.contents.files[static_cast<std::size_t>(file)]);
    }
  }
  CHECK(files == std::vector<std::vector<std::string>>{
                     {file_of(0), file_of(1)}, {file_of(1), ""}, {file_of(2), file_of(1)}, {file_of(3), ""}});
  CHECK(merged.shared_chunks == std::vector<std::int32_t>{2, 5});  // the second and third chunk in the file of rank 1
  CHECK(merged.problems.empty());
}

TEST_CASE("an item with several boxes is not listed as shared") {
  std::vector<dcp::metadata> parts;
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    dcp::metadata made;
    made.contents.files.push_back(file_of(rank));
    tensor_entry tensor;
    tensor.key = "w";
    tensor.where = path{"w"};
    tensor.type = dtype::float32;
    tensor.shape = {2, 2};
    made.contents.tensors.push_back(std::move(tensor));
    for (std::int64_t row = 0; row < 2; ++row) made.contents.add_chunk({{row, 0}, {1, 2}}, {0, 0, 0, 100});
    parts.push_back(std::move(made));
  }
  dcp::merge_rules rules = rules_of(2);
  rules.keys_at_ranks = true;
  rules.are_equal = [](const std::string&, const stored_range&, const std::string&,
                       const stored_range&) -> result<bool> { return false; };
  const dcp::metadata merged = dcp::merge_metadata(std::move(parts), rules);
  CHECK(merged.contents.tensors.size() == 2);
  CHECK(merged.shared_chunks.empty());
}

TEST_CASE("an item that cannot be compared is a problem of its own") {
  dcp::merge_rules rules = rules_of(2);
  rules.are_equal = [](const std::string&, const stored_range&, const std::string& other,
                       const stored_range&) -> result<bool> { return fail(errc::io, "is not there").with_file(other); };
  const dcp::metadata merged = dcp::merge_metadata(all_of(2), rules);
  CHECK(merged.conflicts.size() == 1);  // "size", whose shapes differ
  REQUIRE(merged.problems.size() == 2);
  CHECK(merged.problems[0].key == "rng");
  CHECK(merged.problems[0].file == file_of(1));
  CHECK(merged.problems[1].key == "step");
}

TEST_CASE("metadata files whose names PyTorch gives to no rank are not used, and a warning names each") {
  const scratch_folder scratch;
  const fs::path folder = scratch / "ranks";
  fs::copy(SHARDMESH_TEST_DATA "/golden/options_no_collectives/checkpoint", folder);
  const auto unused = [&] {
    const auto reader = dcp::open(folder).value();
    std::vector<std::string> files;
    for (const error& warning : reader->warnings())
      if (warning.message == "is not used: its name is not that of a rank's metadata") files.push_back(warning.file);
    return files;
  };
  CHECK(unused().empty());
  for (const std::string name : {"__01.metadata", "__10000000000.metadata", "__a.metadata"})
    std::ofstream(folder / name) << "no metadata";
  CHECK(unused() == std::vector<std::string>{(folder / "__01.metadata").string(),
                                             (folder / "__10000000000.metadata").string(),
                                             (folder / "__a.metadata").string()});
}

TEST_CASE("of ranks' metadata files beside .metadata, one warning gives the number and the names") {
  const scratch_folder scratch;
  const fs::path folder = scratch / "ranks";
  fs::copy(SHARDMESH_TEST_DATA "/golden/options_no_collectives/checkpoint", folder);
  fs::rename(folder / "__0.metadata", folder / ".metadata");
  const auto unused = [&] {
    const auto reader = dcp::open(folder).value();
    std::vector<std::string> found;
    for (const error& warning : reader->warnings())
      if (warning.message.find("takes precedence") != std::string::npos) found.push_back(to_string(warning));
    return found;
  };
  CHECK(unused() ==
        std::vector<std::string>{(folder / "__1.metadata").string() + ": is not used: .metadata takes precedence"});
  for (int rank = 2; rank < 13; ++rank) std::ofstream(folder / ("__" + std::to_string(rank) + ".metadata")) << "any";
  CHECK(unused() ==
        std::vector<std::string>{folder.string() +
                                 ": 12 metadata files of ranks are not used, because .metadata takes precedence: "
                                 "__1.metadata, __2.metadata, __3.metadata, __4.metadata, __5.metadata, __6.metadata, "
                                 "__7.metadata, __8.metadata, __9.metadata, __10.metadata and 2 more"});
}
