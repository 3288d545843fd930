// SPDX-License-Identifier: Apache-2.0
// Writes folders of torch_checkpointing from memory, with tensors cut in any way. tests/oracle tests that the package
// reads them.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint;
import shardmesh.layout;
import shardmesh.storage;
import shardmesh.torch_checkpointing;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

using dice = std::mt19937;

int roll(dice& random, int least, int most) {
  return std::uniform_int_distribution<int>(least, most)(random);
}

struct held_box {
  box where;
  std::int32_t rank = 0;
  friend auto operator<=>(const held_box&, const held_box&) = default;
};

// Boxes that tile the shape, cut at random.
std::vector<box> cut_at_will(dice& random, const extents& shape) {
  std::vector<box> parts{box::whole(shape)};
  for (int cuts = roll(random, 0, 5); cuts > 0 && shape.rank() > 0; --cuts) {
    const auto which = static_cast<std::size_t>(roll(random, 0, static_cast<int>(parts.size()) - 1));
    const auto d = static_cast<std::size_t>(roll(random, 0, static_cast<int>(shape.rank()) - 1));
    if (parts[which].sizes[d] < 2) continue;
    const std::int64_t at = roll(random, 1, static_cast<int>(parts[which].sizes[d]) - 1);
    box rest = parts[which];
    rest.offsets[d] += at;
    rest.sizes[d] -= at;
    parts[which].sizes[d] = at;
    parts.push_back(rest);
  }
  return parts;
}

std::vector<held_box> any_cut(dice& random, const extents& shape) {
  std::vector<held_box> held;
  if (roll(random, 0, 1) == 0) {
    for (const box& part : cut_at_will(random, shape)) held.push_back({part, roll(random, 0, 4)});
    return held;
  }
  const int rows = roll(random, 1, 3), columns = roll(random, 1, 3);
  const auto any = [&] {
    const int d = roll(random, -1, static_cast<int>(shape.rank()) - 1);
    return d < 0 ? placement::replicate() : placement::shard(d);
  };
  const layout cut = layout::make(device_mesh::make({rows, columns}).value(), {any(), any()}, shape).value();
  std::set<box> seen;
  for (std::int32_t rank = 0; rank < rows * columns; ++rank)
    for (const placed_box& part : cut.boxes(rank))
      if (!part.where.is_empty() && seen.insert(part.where).second) held.push_back({part.where, rank});
  if (held.empty()) held.push_back({box::whole(shape), 0});
  return held;
}

// The boxes that the ranks' files must hold: a rank's cells if they form one box for every rank; otherwise the lowest
// rank has everything. A tensor without elements belongs to the rank of its first part.
std::vector<held_box> expected_boxes(const extents& shape, const std::vector<held_box>& held) {
  if (box::whole(shape).is_empty()) return {{box::whole(shape), held.front().rank}};
  std::map<std::int32_t, std::vector<box>> by_rank;
  std::int32_t lowest = held.front().rank;
  for (const held_box& one : held) {
    by_rank[one.rank].push_back(one.where);
    lowest = std::min(lowest, one.rank);
  }
  std::vector<held_box> expected;
  for (const auto& [rank, boxes] : by_rank) {
    box around = boxes.front();
    std::int64_t cells = 0;
    for (const box& one : boxes) {
      cells += one.volume();
      for (std::size_t d = 0; d < shape.rank(); ++d) {
        const std::int64_t end = std::max(around.offsets[d] + around.sizes[d], one.offsets[d] + one.sizes[d]);
        around.offsets[d] = std::min(around.offsets[d], one.offsets[d]);
        around.sizes[d] = end - around.offsets[d];
      }
    }
    if (cells != around.volume()) return {{box::whole(shape), lowest}};
    expected.push_back({around, rank});
  }
  std::sort(expected.begin(), expected.end());
  return expected;
}

}  // namespace

TEST_CASE("however a tensor is cut, the folder has every rank's box in that rank's file, and every element") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  dice random(static_cast<std::uint32_t>(seed));
  for (int round = 0; round < 60; ++round) {
    const scratch_folder scratch;
    std::vector<std::vector<std::int32_t>> memory;
    std::vector<save_tensor> tensors;
    std::map<std::string, std::vector<held_box>> expected;
    for (int t = 0; t < 6; ++t) {
      extents shape;
      for (int d = roll(random, 0, 3); d > 0; --d) shape.push_back(roll(random, 0, 7));
      auto& values = memory.emplace_back(static_cast<std::size_t>(box::whole(shape).volume()));
      values.reserve(1);  // so that even an empty tensor has an address
      for (std::int32_t& value : values) value = static_cast<std::int32_t>(random());
      const tensor_view whole{
          reinterpret_cast<std::byte*>(values.data()), dtype::int32, {}, shape, contiguous_strides(shape)};
      save_tensor made{"model.t" + std::to_string(t), {"model", "t" + std::to_string(t)}, shape, {}};
      const std::vector<held_box> held = any_cut(random, shape);
      for (const held_box& one : held) made.parts.push_back({one.where, subview(whole, one.where), one.rank});
      expected[made.key] = expected_boxes(shape, held);
      tensors.push_back(std::move(made));
    }
    INFO("round " << round);
    const auto report = save(scratch.path / "out", tensors, target_format::torch_checkpointing);
    INFO((report ? "" : to_string(report.error())));
    REQUIRE(report);
    auto reader = open_checkpoint(scratch.path / "out").value();
    CHECK(reader->contents().format == checkpoint_format::torch_checkpointing);
    CHECK(reader->warnings().empty());
    CHECK(verify(*reader).value().ok());
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const tensor_entry* const stored = reader->contents().find(tensors[t].key);
      REQUIRE(stored);
      std::vector<held_box> found;
      for (std::int32_t c = stored->first_chunk; c < stored->first_chunk + stored->chunk_count; ++c) {
        const std::int32_t file = reader->contents().chunk_places[static_cast<std::size_t>(c)].file;
        const std::string& name = reader->contents().files[static_cast<std::size_t>(file)];
        found.push_back({reader->contents().chunk_box(*stored, c), torch_checkpointing::rank_of_file(name).value()});
      }
      std::sort(found.begin(), found.end());
      CHECK(found == expected[tensors[t].key]);
      const host_tensor loaded = load_tensor(*reader, tensors[t].key).value();
      CHECK(loaded.bytes().size() == memory[t].size() * 4);
      CHECK((memory[t].empty() || std::memcmp(loaded.bytes().data(), memory[t].data(), memory[t].size() * 4) == 0));
    }
  }
}

TEST_CASE("metadata.pkl says again what was written into it") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  dice random(static_cast<std::uint32_t>(seed));
  for (int round = 0; round < 200; ++round) {
    torch_checkpointing::metadata written{"2.0", roll(random, 1, 9), {}};
    for (int i = roll(random, 0, 3); i > 0; --i) {
      torch_checkpointing::item_metadata item{"item \"" + std::to_string(i), {}, {}};
      for (int t = roll(random, 0, 4); t > 0; --t) {
        const extents shape{roll(random, 0, 9), roll(random, 1, 9)};
        torch_checkpointing::sharding group{shape, dtype::bfloat16, {0}, std::nullopt, {}};
        if (roll(random, 0, 2) == 0)
          group.boxes = {{box::whole(shape), extents{2, 3}}};
        else
          group.laid_out = layout::make(device_mesh::make({1, 1}, {}, {0}).value(),
                                        {placement::shard(0), placement::strided_shard(1, 2)}, shape)
                               .value();
        item.tensors.push_back({{"a.b", t, "\"\n\xc3\xa9"}, {group}});
      }
      for (std::int32_t rank = 0; rank < written.world_size; ++rank)
        item.files.push_back(
            roll(random, 0, 1) == 0
                ? torch_checkpointing::rank_file{torch_checkpointing::default_file_name(item.key, rank)}
                : torch_checkpointing::rank_file{std::to_string(i) + "x" + std::to_string(rank),
                                                 torch_checkpointing::payload::safetensors});
      written.items.push_back(std::move(item));
    }
    read_budget budget;
    const auto read = torch_checkpointing::parse_metadata(torch_checkpointing::format_metadata(written), budget);
    REQUIRE(read);
    REQUIRE(read->items.size() == written.items.size());
    CHECK(read->world_size == written.world_size);
    for (std::size_t i = 0; i < written.items.size(); ++i) {
      const auto &was = written.items[i], &is = read->items[i];
      CHECK(is.key == was.key);
      REQUIRE(is.files.size() == was.files.size());
      for (std::size_t rank = 0; rank < was.files.size(); ++rank) {
        CHECK(is.files[rank].name == was.files[rank].name);
        CHECK(is.files[rank].how == was.files[rank].how);
      }
      REQUIRE(is.tensors.size() == was.tensors.size());
      for (std::size_t t = 0; t < was.tensors.size(); ++t) {
        CHECK(is.tensors[t].where == was.tensors[t].where);
        const auto &a = was.tensors[t].groups.front(), &b = is.tensors[t].groups.front();
        CHECK((a.shape == b.shape && a.type == b.type && a.ranks == b.ranks));
        CHECK(a.laid_out.has_value() == b.laid_out.has_value());
        CHECK(a.boxes_of(0) == b.boxes_of(0));
      }
    }
  }
}

TEST_CASE("the rank of a file is that of its name") {
  using torch_checkpointing::rank_of_file;
  CHECK(rank_of_file("model_3.pt") == 3);
  CHECK(rank_of_file("a_1_12.safetensors") == 12);
  CHECK(rank_of_file("rank_7/model.safetensors") == 7);
  CHECK(rank_of_file("model_2147483646.pt") == 2147483646);
  for (const char* other : {"model.pt", "model_x.pt", "model_-1.pt", "model_99999999999.pt", "model_2147483647.pt",
                            "_.pt", "", "x_3/model_4.pt", "rank_/a.pt", "metadata.pkl", "model_3"})
    CHECK_FALSE(rank_of_file(other));
}

TEST_CASE("a rank that no folder is written for is refused by key, and nothing is written") {
  const scratch_folder scratch;
  std::vector<std::int32_t> values(2);
  const tensor_view whole{reinterpret_cast<std::byte*>(values.data()), dtype::int32, {}, {2}, {1}};
  const save_tensor tensor{"model.w", {"model", "w"}, {2}, {{box::whole({2}), whole, torch_checkpointing::max_ranks}}};
  const auto report = save(scratch.path / "out", {&tensor, 1}, target_format::torch_checkpointing);
  REQUIRE_FALSE(report);
  REQUIRE(report.error().problem_count() == 1);
  CHECK(to_string(report.error()) ==
        "model.w: a part belongs to a rank that is too large for this format: expected below 65536, found 65536");
  CHECK(fs::is_empty(scratch.path));
}

TEST_CASE("after a thousand problems of a folder the tensors that are not looked at are counted") {
  const scratch_folder scratch;
  const auto write = [&](const std::string& name, dtype type) {
    std::vector<std::int64_t> values(2);
    const tensor_view whole{reinterpret_cast<std::byte*>(values.data()), type, {}, {2}, {1}};
    std::vector<save_tensor> tensors;
    for (int i = 0; i < 1003; ++i) {
      const std::string key = "t" + std::to_string(i);
      save_tensor made{"model." + key, {"model", key}, {2}, {}};
      for (const std::int32_t rank : {0, 1}) {
        const box row{{rank}, {1}};
        made.parts.push_back({row, subview(whole, row), rank});
      }
      tensors.push_back(std::move(made));
    }
    REQUIRE(save(scratch.path / name, tensors, target_format::torch_checkpointing));
  };
  write("mixed", dtype::int32);
  write("other", dtype::int64);
  // The metadata describes tensors of another dtype than the files hold.
  for (const auto& entry : fs::directory_iterator(scratch.path / "other"))
    if (entry.path().extension() == ".pt")
      fs::copy(entry.path(), scratch.path / "mixed" / entry.path().filename(), fs::copy_options::overwrite_existing);
  const auto reader = open_checkpoint(scratch.path / "mixed").value();
  const std::vector<error>& problems = reader->problems();
  REQUIRE(problems.size() > 1000);
  const std::size_t looked_at = std::set<std::string>([&] {
                                  std::set<std::string> keys;
                                  for (const error& e : problems) keys.insert(e.key);
                                  keys.erase("");
                                  return keys;
                                }())
                                    .size();
  CHECK(to_string(problems.back()) ==
        (scratch.path / "mixed" / "metadata.pkl").string() + ": " +
            (1003 - looked_at == 1 ? "1 more tensor is" : std::to_string(1003 - looked_at) + " more tensors are") +
            " not checked, after 1000 problems");
}

TEST_CASE(
    "an object in place of a described tensor is a problem that names its file, and what was expected and found") {
  const scratch_folder scratch;
  const fs::path folder = scratch.path / "changed";
  fs::copy(SHARDMESH_TEST_DATA "/writers/torch_checkpointing/one_rank/checkpoint", folder);
  // The sample's item "step" is a number without metadata.
  read_budget budget;
  torch_checkpointing::metadata described =
      torch_checkpointing::parse_metadata(read_file(folder / "metadata.pkl", 1 << 20).value(), budget).value();
  torch_checkpointing::sharding group{{2}, dtype::float32, {0}, std::nullopt, {}};
  group.boxes = {{box::whole({2}), extents{0}}};
  torch_checkpointing::item_metadata item{"step", {}, {}};
  item.tensors.push_back({{}, {group}});
  item.files.push_back({"step_0.pt"});
  described.items.push_back(std::move(item));
  const auto bytes = torch_checkpointing::format_metadata(described);
  fs::remove(folder / "metadata.pkl");
  std::ofstream(folder / "metadata.pkl", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  const auto reader = open_checkpoint(folder).value();
  REQUIRE(reader->problems().size() == 1);
  CHECK(reader->problems()[0].code == errc::bad_format);
  CHECK(to_string(reader->problems()[0]) ==
        (folder / "step_0.pt").string() +
            ": step: the file has an object in place of a tensor that the metadata describes (rank 0): expected "
            "float32 [2], found int");
  CHECK(reader->contents().find("step") != nullptr);
  CHECK(reader->contents().find_object("step") == nullptr);
}
