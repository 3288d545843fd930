// SPDX-License-Identifier: Apache-2.0
// Tests that a delta over its base gives the new checkpoint: random tensors, any chunks of the base, any box.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
#include <string>
#include <utility>
#include <vector>

#include "delta_models.hpp"

using namespace shardmesh;
using delta_models::tensor;
using delta_models::tensors;

namespace {

tensors random_checkpoint(dice& random) {
  tensors made;
  const std::int64_t count = 1 + random.below(6);
  for (std::int64_t i = 0; i < count; ++i)
    made["t" + std::to_string(i)] =
        delta_models::random_tensor(random, delta_models::random_type(random), delta_models::random_shape(random));
  return made;
}

// What the model knows of a delta.
struct expected_counts {
  std::int64_t unchanged = 0, changed = 0, added = 0, removed = 0, bytes = 0;
};

// Leaves a tensor as it is, or changes some bytes, all of them, its dtype, or its shape.
void change(dice& random, tensor& one, expected_counts& counts) {
  const tensor before = one;
  switch (random.below(5)) {
    case 0:
      break;
    case 1:
      for (std::int64_t i = 1 + random.below(5); i > 0 && !one.bytes.empty(); --i)
        one.bytes[random.one_of(one.bytes.size())] = delta_models::random_byte(random);
      break;
    case 2:
      for (std::byte& byte : one.bytes) byte = delta_models::random_byte(random);
      break;
    case 3:
      one = delta_models::random_tensor(random, delta_models::random_type(random), one.shape);
      break;
    default:
      one = delta_models::random_tensor(random, one.type, delta_models::random_shape(random));
  }
  if (one.type != before.type || one.shape != before.shape)
    ++counts.added;
  else
    ++(one == before ? counts.unchanged : counts.changed);
}

tensors next_of(dice& random, const tensors& base, expected_counts& counts) {
  tensors made;
  for (const auto& [key, one] : base) {
    if (random.one_in(6)) {
      ++counts.removed;
      continue;
    }
    made[key] = one;
    change(random, made[key], counts);
  }
  if (made.empty() || random.one_in(3)) {
    made["new"] =
        delta_models::random_tensor(random, delta_models::random_type(random), delta_models::random_shape(random));
    ++counts.added;
  }
  for (const auto& [key, one] : made) counts.bytes += static_cast<std::int64_t>(one.bytes.size());
  return made;
}

}  // namespace

TEST_CASE("a delta over its base gives the new tensors, whatever the chunks of both are") {
  const std::uint64_t first = random_seed::seed();
  for (std::uint64_t round = 0; round < random_seed::rounds(60); ++round) {
    const std::uint64_t seed = first + round;
    INFO("SHARDMESH_SEED=" << seed);
    dice random(seed);
    const scratch_folder folder;
    tensors base = random_checkpoint(random);
    expected_counts counts;
    tensors next = next_of(random, base, counts);
    delta_models::write(folder / "base.safetensors", base);
    delta_models::write(folder / "base", base, 1 + random.below(4));
    delta_models::write(folder / "next", next, 1 + random.below(4));
    const delta_options options{.level = static_cast<int>(random.below(27)) - 7,
                                .block_bytes = random.pick<std::int64_t>({64, 100, 256, 1024, 1 << 20}),
                                .check_sums = random.one_in(2),
                                .threads = 1 + static_cast<int>(random.below(3))};
    const delta_report report =
        delta_models::try_delta(folder / "base.safetensors", folder / "next", folder / "d", options).value();
    CHECK(report.unchanged == counts.unchanged);
    CHECK(report.changed == counts.changed);
    CHECK(report.added == counts.added);
    CHECK(report.removed == counts.removed);
    CHECK(report.bytes == counts.bytes);
    CHECK(report.tensors == static_cast<std::int64_t>(next.size()));
    CHECK(report.delta_bytes == static_cast<std::int64_t>(std::filesystem::file_size(folder / "d")));
    for (const char* const name : {"base.safetensors", "base"}) {
      INFO(name);
      const auto reader = open_delta(delta_models::opened(folder / name), folder / "d").value();
      CHECK(delta_models::read_all(*reader).value() == next);
    }
  }
}

TEST_CASE("a box that is read alone equals the box of the whole tensor") {
  const std::uint64_t first = random_seed::seed();
  for (std::uint64_t round = 0; round < random_seed::rounds(20); ++round) {
    const std::uint64_t seed = first + round;
    INFO("SHARDMESH_SEED=" << seed);
    dice random(seed);
    const scratch_folder folder;
    tensors base{{"w", delta_models::random_tensor(random, delta_models::random_type(random),
                                                   {1 + random.below(9), 1 + random.below(20), 1 + random.below(30)})}};
    tensors next = base;
    for (std::byte& byte : next["w"].bytes)
      if (random.one_in(20)) byte = delta_models::random_byte(random);
    delta_models::write(folder / "base", base, 3);
    delta_models::write(folder / "next.safetensors", next);
    const std::int64_t block = random.pick<std::int64_t>({64, 200, 1000});
    delta_models::try_delta(folder / "base", folder / "next.safetensors", folder / "d", {.block_bytes = block}).value();
    const auto reader = open_delta(delta_models::opened(folder / "base"), folder / "d").value();
    const tensor_entry& entry = reader->contents().tensors.front();
    for (int i = 0; i < 40; ++i) {
      const box part = delta_models::random_box(random, entry.shape);
      INFO(to_string(part));
      CHECK(delta_models::read(*reader, entry, part).value().bytes == delta_models::part_of(next["w"], part));
    }
  }
}

TEST_CASE("a strided destination and a cast get the same values as from the new checkpoint") {
  const scratch_folder folder;
  dice random(7);
  tensors base{{"w", delta_models::random_tensor(random, dtype::int32, {40, 50})}};
  tensors next = base;
  next["w"].bytes[4 * 777] ^= std::byte{1};
  delta_models::write(folder / "base.safetensors", base);
  delta_models::write(folder / "next.safetensors", next);
  delta_models::try_delta(folder / "base.safetensors", folder / "next.safetensors", folder / "d", {.block_bytes = 256})
      .value();
  const auto made = open_delta(delta_models::opened(folder / "base.safetensors"), folder / "d").value();
  const auto expected = delta_models::opened(folder / "next.safetensors");
  std::vector<double> left(2 * 40 * 50), right(left.size());
  const auto into = [](std::vector<double>& values) {
    return tensor_view{reinterpret_cast<std::byte*>(values.data()), dtype::float64, {}, {40, 50}, {100, 2}};
  };
  load_into(*made, "w", into(left)).value();
  load_into(*expected, "w", into(right)).value();
  CHECK(left == right);
}

TEST_CASE("equal inputs give equal files, whatever the threads and the chunks are") {
  const scratch_folder folder;
  dice random(11);
  tensors base = random_checkpoint(random);
  base["large"] = delta_models::random_tensor(random, dtype::bfloat16, {300, 70});
  expected_counts counts;
  tensors next = next_of(random, base, counts);
  next["large"] = base["large"];
  for (std::byte& byte : next["large"].bytes)
    if (random.one_in(50)) byte = delta_models::random_byte(random);
  delta_models::write(folder / "base.safetensors", base);
  delta_models::write(folder / "next.safetensors", next);
  delta_models::write(folder / "base", base, 4);
  const auto make = [&](const char* from, const char* file, int threads) {
    delta_models::try_delta(folder / from, folder / "next.safetensors", folder / file,
                            {.block_bytes = 512, .threads = threads})
        .value();
    return delta_models::bytes_of(folder / file);
  };
  const auto alone = make("base.safetensors", "a", 1);
  CHECK(make("base.safetensors", "b", 4) == alone);
  CHECK(make("base", "c", 3) == alone);
}

TEST_CASE("unchanged tensors take some bytes per block, and sparse changes a few bytes each") {
  const scratch_folder folder;
  dice random(13);
  constexpr std::int64_t elements = 1 << 20;
  tensors base{{"w", delta_models::random_tensor(random, dtype::bfloat16, {elements})}};
  tensors next = base;
  delta_models::write(folder / "base.safetensors", base);
  delta_models::write(folder / "same.safetensors", next);
  const delta_report same =
      delta_models::try_delta(folder / "base.safetensors", folder / "same.safetensors", folder / "same.delta").value();
  CHECK(same.delta_bytes < 1000);
  for (std::int64_t i = 0; i < elements / 100; ++i) {
    const std::size_t at = 2 * random.one_of(elements);
    next["w"].bytes[at] = delta_models::random_byte(random);
    next["w"].bytes[at + 1] = delta_models::random_byte(random);
  }
  delta_models::write(folder / "next.safetensors", next);
  for (const int level : {-7, 3}) {
    INFO(level);
    const delta_report sparse = delta_models::try_delta(folder / "base.safetensors", folder / "next.safetensors",
                                                        folder / "sparse.delta", {.level = level, .overwrite = true})
                                    .value();
    CHECK(sparse.delta_bytes * 1024 <= 35 * sparse.bytes);  // 35 MiB per GiB
  }
}

TEST_CASE("a delta converts to another format, and equals the new checkpoint in it") {
  const scratch_folder folder;
  dice random(17);
  tensors base{{"a", delta_models::random_tensor(random, dtype::float32, {64, 33})},
               {"b", delta_models::random_tensor(random, dtype::uint8, {})},
               {"c", delta_models::random_tensor(random, dtype::float16, {0, 3})}};
  tensors next = base;
  next["a"].bytes[400] ^= std::byte{3};
  delta_models::write(folder / "base", base, 3);
  delta_models::write(folder / "next.safetensors", next);
  delta_models::try_delta(folder / "base", folder / "next.safetensors", folder / "d", {.block_bytes = 1000}).value();
  const auto reader = open_delta(delta_models::opened(folder / "base"), folder / "d").value();
  CHECK(reader->contents().format == checkpoint_format::delta);
  for (const target_format format : {target_format::dcp, target_format::safetensors, target_format::pt}) {
    const auto destination = folder / ("out" + std::to_string(static_cast<int>(format)));
    convert(*reader, destination, {.format = format, .durable = false}).value();
    CHECK(delta_models::read_all(*delta_models::opened(destination)).value() == next);
  }
}

TEST_CASE("the reader of one delta is the base of the next one, and the source of a new one") {
  const scratch_folder folder;
  dice random(29);
  std::vector<tensors> steps(3);
  steps[0]["w"] = delta_models::random_tensor(random, dtype::bfloat16, {60, 17});
  for (std::size_t step = 1; step < 3; ++step) {
    steps[step] = steps[step - 1];
    steps[step]["w"].bytes[random.one_of(2040)] ^= std::byte{7};
    steps[step]["at" + std::to_string(step)] = delta_models::random_tensor(random, dtype::float32, {3});
  }
  for (std::size_t step = 0; step < 3; ++step)
    delta_models::write(folder / (std::to_string(step) + ".safetensors"), steps[step]);
  delta_models::try_delta(folder / "0.safetensors", folder / "1.safetensors", folder / "01", {.block_bytes = 128})
      .value();
  delta_models::try_delta(folder / "1.safetensors", folder / "2.safetensors", folder / "12", {.block_bytes = 200})
      .value();
  const auto chained = [&] {
    auto first = open_delta(delta_models::opened(folder / "0.safetensors"), folder / "01").value();
    return open_delta(std::move(first), folder / "12").value();
  };
  const auto last = chained();
  CHECK(delta_models::read_all(*last).value() == steps[2]);
  const auto base = delta_models::opened(folder / "0.safetensors");
  CHECK(save_delta(*base, *last, folder / "02", {.durable = false}).value().added == 2);
  const auto made = open_delta(delta_models::opened(folder / "0.safetensors"), folder / "02").value();
  CHECK(delta_models::read_all(*made).value() == steps[2]);
}

TEST_CASE("objects, opaque tensors, and nested paths are carried whole") {
  const std::filesystem::path data = SHARDMESH_TEST_DATA;
  for (const auto& source : {data / "golden" / "single_rank" / "checkpoint", data / "unusual" / "dcp"}) {
    INFO(source);
    const scratch_folder folder;
    const delta_report report = delta_models::try_delta(source, source, folder / "d").value();
    CHECK(report.objects > 0);
    CHECK(report.changed == 0);
    const auto reader = open_delta(delta_models::opened(source), folder / "d").value();
    const auto expected = delta_models::opened(source);
    expected->identify_opaque_tensors();
    const catalog &made = reader->contents(), &stored = expected->contents();
    REQUIRE(made.objects.size() == stored.objects.size());
    for (std::size_t i = 0; i < made.objects.size(); ++i) {
      CHECK(made.objects[i].key == stored.objects[i].key);
      CHECK(made.objects[i].where == stored.objects[i].where);
      CHECK(reader->object_archive(i).value() == expected->object_archive(i).value());
    }
    REQUIRE(made.tensors.size() == stored.tensors.size());
    for (std::size_t i = 0; i < made.tensors.size(); ++i) {
      const tensor_entry &is = made.tensors[i], &was = stored.tensors[i];
      CHECK(is.key == was.key);
      CHECK(is.where == was.where);
      CHECK(is.properties == was.properties);
      CHECK(is.opaque_type == was.opaque_type);
      CHECK(is.opaque_kind == was.opaque_kind);
    }
    const diff_report compared = diff(*reader, *expected).value();
    CHECK(compared.differences.empty());
    CHECK(compared.problems.empty());
    CHECK(compared.objects == report.objects);
    // Safetensors gets the tensors inside objects, and the components of opaque ones.
    convert(*reader, folder / "made.safetensors", {.durable = false}).value();
    convert(*expected, folder / "expected.safetensors", {.durable = false}).value();
    CHECK(delta_models::bytes_of(folder / "made.safetensors") ==
          delta_models::bytes_of(folder / "expected.safetensors"));
  }
}

TEST_CASE("a delta that a writer in Python made is read") {  // tests/oracle/make_delta.py
  const std::filesystem::path folder = std::filesystem::path(SHARDMESH_TEST_DATA) / "delta";
  const auto reader = open_delta(delta_models::opened(folder / "base.safetensors"), folder / "next.delta").value();
  const tensors base = delta_models::read_all(*delta_models::opened(folder / "base.safetensors")).value();
  tensors expected = base;
  for (std::size_t i = 10; i < 20; ++i) expected["changed"].bytes[i] ^= std::byte{0x55};
  expected["new"] = {dtype::float32, {5}, std::vector<std::byte>(20)};
  const std::vector<float> values{0, 1, 2, 3, 4};
  std::memcpy(expected["new"].bytes.data(), values.data(), 20);
  expected["none"] = {dtype::int64, {0, 2}, {}};
  CHECK(delta_models::read_all(*reader).value() == expected);
}
