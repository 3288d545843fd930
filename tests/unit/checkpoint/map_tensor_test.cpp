// SPDX-License-Identifier: Apache-2.0
// Compares mapped tensors with loaded ones, in every format that stores plain bytes. Also tests which tensors cannot be
// mapped, and why.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <vector>

import shardmesh.checkpoint_core;
import shardmesh.checkpoint;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

// The view's elements in row-major order.
std::vector<std::byte> elements(const const_tensor_view& view) {
  const auto item = static_cast<std::size_t>(item_bytes(view.type));
  std::vector<std::byte> all;
  const std::int64_t count = box::whole(view.sizes).volume();
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i, at = 0;
    for (std::size_t d = view.sizes.rank(); d-- > 0; rest /= view.sizes[d])
      at += rest % view.sizes[d] * view.strides[d];
    const std::byte* const element = view.data + at * static_cast<std::int64_t>(item);
    all.insert(all.end(), element, element + item);
  }
  return all;
}

std::vector<std::byte> loaded(checkpoint_reader& reader, std::string_view key, const box& where) {
  const host_tensor whole = load_tensor(reader, key, where).value();
  return elements(view_of(whole));
}

box random_box(const extents& shape, std::mt19937& random) {
  box part = box::whole(shape);
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    const std::int64_t a = shape[d] == 0 ? 0 : static_cast<std::int64_t>(random()) % (shape[d] + 1);
    const std::int64_t b = shape[d] == 0 ? 0 : static_cast<std::int64_t>(random()) % (shape[d] + 1);
    part.offsets[d] = std::min(a, b);
    part.sizes[d] = std::max(a, b) - std::min(a, b);
  }
  return part;
}

const dtype dtypes[] = {dtype::float32, dtype::bfloat16,      dtype::uint8,     dtype::int64,
                        dtype::boolean, dtype::float8_e4m3fn, dtype::complex64, dtype::float64};

// Saves whole tensors of random shapes, some with prime sizes and some empty.
void save_random(const fs::path& path, target_format format, std::mt19937& random, std::vector<host_tensor>& tensors) {
  std::vector<save_tensor> saved;
  for (int i = 0; i < 12; ++i) {
    extents shape;
    for (std::uint32_t d = random() % 4; d > 0; --d) shape.push_back(random() % 8);
    tensors.push_back(host_tensor::make(dtypes[random() % std::size(dtypes)], shape).value());
    const std::span<std::byte> bytes = tensors.back().bytes();
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random() % 2); });
    saved.push_back(
        {"t" + std::to_string(i), {"t" + std::to_string(i)}, shape, {{box::whole(shape), view_of(tensors.back()), 0}}});
  }
  REQUIRE(save(path, saved, format));
}

}  // namespace

TEST_CASE("a mapped tensor, and a box of it, has the elements that a load gives, in every format") {
  scratch_folder scratch;
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  int trial = 0, mapped = 0;
  for (const auto& [format, name] : {std::pair{target_format::dcp, "dcp"},
                                     {target_format::safetensors, "a.safetensors"},
                                     {target_format::hf, "hf"},
                                     {target_format::pt, "a.pt"}})
    for (int round = 0; round < 4; ++round) {
      const fs::path path = scratch.path / (std::to_string(trial++) + name);
      std::vector<host_tensor> tensors;
      save_random(path, format, random, tensors);
      const auto reader = open_checkpoint(path).value();
      tensor_map map(*reader, {.allow_unaligned = true});
      for (const tensor_entry& tensor : reader->contents().tensors) {
        INFO(path.string() << " " << tensor.key << " " << to_string(tensor.shape));
        for (const box& where : {box::whole(tensor.shape), random_box(tensor.shape, random)}) {
          const auto part = map.tensor(tensor.key, where);
          REQUIRE(part);
          CHECK(part->view().type == tensor.type);
          CHECK(part->view().sizes == where.sizes);
          CHECK(elements(part->view()) == loaded(*reader, tensor.key, where));
          CHECK(part->check());
          ++mapped;
          // Without `allow_unaligned`, mapping succeeds only where the address is aligned for the dtype.
          const auto strict = map_tensor(*reader, tensor.key, where);
          const std::size_t wanted =
              tensor.type == dtype::complex64 ? 4 : static_cast<std::size_t>(item_bytes(tensor.type));
          const bool is_aligned = reinterpret_cast<std::uintptr_t>(part->view().data) % wanted == 0;
          CHECK(strict.has_value() == (is_aligned || where.is_empty()));
          if (!strict) CHECK(strict.error().code == errc::unaligned);
        }
      }
    }
  CHECK(mapped == trial * 24);
}

TEST_CASE("a mapped tensor outlives the reader and its map, and a removed file; a shorter file is noticed") {
  scratch_folder scratch;
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  std::vector<float> source = values;
  const tensor_view view{reinterpret_cast<std::byte*>(source.data()), dtype::float32, {}, {2, 3}, {3, 1}};
  const fs::path path = scratch.path / "a.safetensors";
  const save_tensor saved{"w", {"w"}, {2, 3}, {{box::whole({2, 3}), view, 0}}};
  REQUIRE(save(path, {&saved, 1}, target_format::safetensors));
  std::optional<mapped_tensor> kept = map_tensor(*open_checkpoint(path).value(), "w").value();
  const auto* const mapped = reinterpret_cast<const float*>(kept->view().data);
  CHECK(std::vector<float>(mapped, mapped + 6) == values);

  // The file is replaced by a rename: the earlier mapping keeps the old bytes.
  fs::rename(path, scratch.path / "old");
  std::fill(source.begin(), source.end(), 9.0F);
  REQUIRE(save(path, {&saved, 1}, target_format::safetensors));
  CHECK(kept->check());
  CHECK(std::vector<float>(mapped, mapped + 6) == values);

  const auto reader = open_checkpoint(path).value();
  kept = map_tensor(*reader, "w").value();
  const std::uintmax_t size = fs::file_size(path);
  fs::resize_file(path, size - 1);
  const auto shorter = kept->check();
  REQUIRE_FALSE(shorter);
  CHECK(shorter.error() == fail(errc::io, "became shorter after it was mapped")
                               .with_file(path.string())
                               .with_values(std::to_string(size) + " bytes", std::to_string(size - 1)));
  const auto late = map_tensor(*reader, "w");
  REQUIRE_FALSE(late);
  CHECK(late.error() == fail(errc::io, "became shorter after it was opened")
                            .with_file(path.string())
                            .with_key("w")
                            .with_box(box::whole({2, 3})));
}

TEST_CASE("what does not lie plain in one run of a file is refused with the reason and another way") {
  scratch_folder scratch;
  std::vector<float> source(12, 1.0F);
  const tensor_view whole{reinterpret_cast<std::byte*>(source.data()), dtype::float32, {}, {4, 3}, {3, 1}};
  const box top{{0, 0}, {2, 3}}, bottom{{2, 0}, {2, 3}};
  const save_tensor saved{"w", {"w"}, {4, 3}, {{top, subview(whole, top), 0}, {bottom, subview(whole, bottom), 1}}};
  REQUIRE(save(scratch.path / "dcp", {&saved, 1}, target_format::dcp));
  const auto reader = open_checkpoint(scratch.path / "dcp").value();
  const std::string file = (scratch.path / "dcp").string();
  CHECK(map_tensor(*reader, "w").error() ==
        fail(errc::unsupported, "no chunk of its 2 holds all of this box")
            .with_file(file)
            .with_key("w")
            .with_box(box::whole({4, 3}))
            .with_hint("load it, or map boxes that lie within one chunk, as " + to_string(top)));
  CHECK(map_tensor(*reader, "w", bottom, {.allow_unaligned = true}));
  CHECK(map_tensor(*reader, "w", box{{3, 0}, {2, 3}}).error().code == errc::shape_mismatch);
  CHECK(map_tensor(*reader, "w", box{{3}, {1}}).error().code == errc::shape_mismatch);
  CHECK(map_tensor(*reader, "v").error().code == errc::missing_key);
  CHECK(map_tensor(*reader, "v", top).error().code == errc::missing_key);

  const fs::path unusual = fs::path(SHARDMESH_TEST_DATA) / "unusual";
  int deflated = 0;
  for (const char* name : {"views.pt", "views_deflated.pt"}) {
    const auto views = open_checkpoint(unusual / name).value();
    for (const tensor_entry& tensor : views->contents().tensors) {
      INFO(name << " " << tensor.key);
      const auto mapped = map_tensor(*views, tensor.key, {.allow_unaligned = true});
      if (mapped) {
        CHECK(elements(mapped->view()) == loaded(*views, tensor.key, box::whole(tensor.shape)));
        continue;
      }
      CHECK(mapped.error().code == errc::unsupported);
      CHECK(mapped.error().message == "is not stored in this form: its bytes are computed when they are read");
      CHECK(mapped.error().hint == "load it");
      ++deflated;
    }
  }
  CHECK(deflated > 0);
  const auto swapped = open_checkpoint(SHARDMESH_TEST_DATA "/golden/corrupt/blob_big_endian_valid/checkpoint").value();
  int other_order = 0;
  for (const tensor_entry& tensor : swapped->contents().tensors)
    for (std::int32_t i = 0; i < tensor.chunk_count; ++i) {
      const box held = swapped->contents().chunk_box(tensor, tensor.first_chunk + i);
      const auto mapped = map_tensor(*swapped, tensor.key, held, {.allow_unaligned = true});
      other_order += !mapped && mapped.error().message == "is stored in the other byte order";
    }
  CHECK(other_order > 0);
}

TEST_CASE("rank after rank loads its columns through one reader that maps rows, in every plain format") {
  const scratch_folder scratch;
  const extents shape{48, 40};
  std::vector<float> values(48 * 40);
  std::iota(values.begin(), values.end(), 0.0F);
  save_tensor saved{"w", {"w"}, shape, {}};
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const box rows{{rank * 12, 0}, {12, 40}};
    const auto* const begin = reinterpret_cast<const std::byte*>(values.data() + rank * 12 * 40);
    saved.parts.push_back({rows, {begin, dtype::float32, {}, rows.sizes, {40, 1}}, static_cast<std::int32_t>(rank)});
  }
  const fs::path dcp = scratch.path / "dcp", file = scratch.path / "w.safetensors";
  REQUIRE(save(dcp, {&saved, 1}, target_format::dcp));
  REQUIRE(save(file, {&saved, 1}, target_format::safetensors));
  for (const fs::path& path : {dcp, file}) {
    const auto reader = open_checkpoint(path).value();
    const auto load_columns = [&](std::int64_t rank, std::vector<float>& got) -> result<load_report> {
      const box columns{{0, rank * 5}, {48, 5}};
      got.assign(48 * 5, -1);
      const tensor_view to{reinterpret_cast<std::byte*>(got.data()), dtype::float32, {}, columns.sizes, {5, 1}};
      return load_into(*reader, "w", columns, to, {.threads = 2, .reading = {.map_rows = true}});
    };
    std::vector<float> got;
    for (std::int64_t rank = 0; rank < 8; ++rank) {
      REQUIRE(load_columns(rank, got));
      std::vector<float> wanted;
      for (std::int64_t i = 0; i < 48; ++i)
        for (std::int64_t j = 0; j < 5; ++j) wanted.push_back(static_cast<float>(i * 40 + rank * 5 + j));
      CHECK(got == wanted);
    }
    const fs::path shorter = path == dcp ? dcp / "__2_0.distcp" : file;
    fs::resize_file(shorter, 64);
    const auto refused = load_columns(0, got);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::io);
    CHECK(to_string(refused.error()).find(shorter.string()) != std::string::npos);
    CHECK(refused.error().key == "w");
  }
}
