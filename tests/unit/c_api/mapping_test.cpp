// SPDX-License-Identifier: Apache-2.0
// Tests mapped tensors through the C interface: the same bytes as the library maps, their lifetime, and refusals.
#include <c_answers.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <filesystem>
#include <golden.hpp>
#include <optional>
#include <string>
#include <vector>

import shardmesh;

using namespace c_answers;

namespace {

std::string golden_path(const char* name) {
  return (golden::folder() / name / "checkpoint").string();
}

std::vector<std::int64_t> numbers(const shardmesh::extents& values) {
  return {values.begin(), values.end()};
}

bool is_same(const c::mapped_tensor& theirs, const shardmesh::const_tensor_view& ours) {
  const c::const_tensor view = theirs.view();
  const auto size = static_cast<std::size_t>(theirs.size_bytes());
  return static_cast<int>(view.dtype) == static_cast<int>(ours.type) && view.sizes == numbers(ours.sizes) &&
         view.strides == numbers(ours.strides) && std::memcmp(view.data, ours.data, size) == 0;
}

}  // namespace

TEST_CASE("chunks and tensors of golden checkpoints are mapped as the library maps them, or refused in its words") {
  std::size_t mapped = 0, refused = 0;
  for (const char* name : {"fsdp2_tp_2x2", "dtypes", "options_zstd", "hf_sharded"}) {
    const auto reader = shardmesh::open_checkpoint(golden_path(name)).value();
    reader->identify_opaque_tensors();
    const c::checkpoint from = c::checkpoint::open(golden_path(name));
    for (const shardmesh::tensor_entry& entry : reader->contents().tensors) {
      CAPTURE(name, entry.key);
      const shardmesh::box first = reader->contents().chunk_box(entry, entry.first_chunk);
      for (const bool is_whole : {true, false}) {
        const shardmesh::box where = is_whole ? shardmesh::box::whole(entry.shape) : first;
        const auto ours = shardmesh::map_tensor(*reader, entry.key, where, {.allow_unaligned = true});
        c::map_options options;
        options.allow_unaligned = true;
        if (!is_whole) options.offsets = numbers(where.offsets);
        if (!is_whole) options.sizes = numbers(where.sizes);
        std::optional<c::mapped_tensor> theirs;
        const auto problems = problems_of([&] { theirs = c::map_tensor(from, entry.key, options); });
        REQUIRE(problems.empty() == bool(ours));
        if (ours) {
          CHECK(is_same(*theirs, ours->view()));
          theirs->check();
          ++mapped;
        } else {
          CHECK(std::string(problems[0].what()) == to_string(ours.error()));
          ++refused;
        }
      }
    }
  }
  CHECK(mapped > 50);
  CHECK(refused > 10);
}

TEST_CASE("what was mapped outlives the checkpoint and the file's name") {
  const scratch_folder scratch;
  const std::vector<float> stored{0, 1, 2, 3, 4, 5};
  c::save_options options;
  options.format = SHARDMESH_FORMAT_SAFETENSORS;
  c::save(scratch / "w.safetensors", {{"w", c::view(stored.data(), {2, 3})}}, options);
  std::optional<c::mapped_tensor> mapped;
  {
    const c::checkpoint from = c::checkpoint::open(scratch / "w.safetensors");
    mapped = c::map_tensor(from, "w");
  }
  std::filesystem::remove(scratch / "w.safetensors");
  mapped->check();
  REQUIRE(mapped->size_bytes() == 24);
  CHECK(std::memcmp(mapped->view().data, stored.data(), 24) == 0);
}

TEST_CASE("a box is strided in the file; its bytes reach to its last element") {
  const scratch_folder scratch;
  const std::vector<float> stored{0, 1, 2, 3, 4, 5};
  c::save_options options;
  options.format = SHARDMESH_FORMAT_SAFETENSORS;
  c::save(scratch / "w.safetensors", {{"w", c::view(stored.data(), {2, 3})}}, options);
  const c::checkpoint from = c::checkpoint::open(scratch / "w.safetensors");
  const c::mapped_tensor column = c::map_tensor(from, "w", {{0, 1}, {2, 1}, false});
  const c::const_tensor view = column.view();
  CHECK(view.strides == std::vector<std::int64_t>{3, 1});
  CHECK(column.size_bytes() == 16);
  CHECK(static_cast<const float*>(view.data)[3] == 4);
}

TEST_CASE("a file that became shorter is an error that names it") {
  const scratch_folder scratch;
  const std::vector<float> stored(6, 1.0F);
  c::save_options options;
  options.format = SHARDMESH_FORMAT_SAFETENSORS;
  c::save(scratch / "w.safetensors", {{"w", c::view(stored.data(), {2, 3})}}, options);
  const c::mapped_tensor mapped = c::map_tensor(c::checkpoint::open(scratch / "w.safetensors"), "w");
  std::filesystem::resize_file(scratch / "w.safetensors", 8);
  const auto problems = problems_of([&] { mapped.check(); });
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].status == SHARDMESH_IO);
  CHECK(problems[0].path == scratch / "w.safetensors");
}

TEST_CASE("a map's null arguments and boxes of other dimensions are refused") {
  const c::checkpoint from = c::checkpoint::open(golden_path("fsdp2_tp_2x2"));
  const std::string key = from.tensor_at(0).key;
  shardmesh_mapped* made = nullptr;
  CHECK(shardmesh_map_tensor(nullptr, "w", 0, nullptr, &made, nullptr) == SHARDMESH_INVALID_ARGUMENT);
  CHECK(shardmesh_map_tensor(from.c(), nullptr, 0, nullptr, &made, nullptr) == SHARDMESH_INVALID_ARGUMENT);
  CHECK(shardmesh_map_tensor(from.c(), key.c_str(), 0, nullptr, nullptr, nullptr) == SHARDMESH_INVALID_ARGUMENT);
  const std::int64_t two[] = {1, 1};
  shardmesh_map_options options{};
  options.struct_size = sizeof options;
  options.offsets = two;
  options.rank = 2;
  CHECK(shardmesh_map_tensor(from.c(), key.c_str(), 0, &options, &made, nullptr) == SHARDMESH_INVALID_ARGUMENT);
  options.sizes = two;
  options.rank = -1;
  CHECK(shardmesh_map_tensor(from.c(), key.c_str(), 0, &options, &made, nullptr) == SHARDMESH_INVALID_ARGUMENT);
  options.rank = 17;
  CHECK(shardmesh_map_tensor(from.c(), key.c_str(), 0, &options, &made, nullptr) == SHARDMESH_RANK_TOO_LARGE);
  CHECK(made == nullptr);
  shardmesh_mapped_view view{};
  view.struct_size = sizeof view;
  CHECK(shardmesh_mapped_describe(nullptr, &view, nullptr) == SHARDMESH_INVALID_ARGUMENT);
  CHECK(shardmesh_mapped_check(reinterpret_cast<const shardmesh_mapped*>(from.c()), nullptr) ==
        SHARDMESH_INVALID_ARGUMENT);
  shardmesh_mapped_free(nullptr);
}
