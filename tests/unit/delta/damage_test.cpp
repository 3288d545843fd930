// SPDX-License-Identifier: Apache-2.0
// Tests deltas that were cut or changed, by accident or on purpose: each ends in an error, and takes no memory that the
// file does not justify.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "delta_models.hpp"

import shardmesh.digest;

using namespace shardmesh;
using delta_models::tensors;

namespace {

using bytes = std::vector<std::byte>;

// Opens the delta, and reads every tensor and object.
result<tensors> read_everything(const std::filesystem::path& base, const std::filesystem::path& file,
                                const open_options& options = {}) {
  auto reader = open_delta(delta_models::opened(base), file, options);
  if (!reader) return std::move(reader).error();
  for (std::size_t i = 0; i < (*reader)->contents().objects.size(); ++i)
    if (auto archive = (*reader)->object_archive(i); !archive) return std::move(archive).error();
  return delta_models::read_all(**reader);
}

// A base, and a delta with blocks of each coding, a new tensor, a scalar, and an empty tensor.
struct written_delta {
  scratch_folder folder;
  tensors base, next;
  bytes file;

  written_delta() {
    dice random(3);
    base = {{"same", delta_models::random_tensor(random, dtype::float32, {40})},
            {"sparse", delta_models::random_tensor(random, dtype::bfloat16, {8, 40})},
            {"dense", delta_models::random_tensor(random, dtype::uint8, {100})},
            {"scalar", delta_models::random_tensor(random, dtype::int64, {})},
            {"empty", delta_models::random_tensor(random, dtype::int64, {0, 2})}};
    next = base;
    next["sparse"].bytes[30] ^= std::byte{9};
    for (std::byte& one : next["dense"].bytes) one = delta_models::random_byte(random);
    next["new"] = delta_models::random_tensor(random, dtype::int32, {20});
    std::fill(next["new"].bytes.begin(), next["new"].bytes.begin() + 60, std::byte{0});
    delta_models::write(path("base.safetensors"), base);
    delta_models::write(path("next.safetensors"), next);
    delta_models::try_delta(path("base.safetensors"), path("next.safetensors"), path("d"), {.block_bytes = 128})
        .value();
    file = delta_models::bytes_of(path("d"));
  }
  std::filesystem::path path(const std::string& name) const { return folder / name; }
  result<tensors> read(const bytes& changed, const open_options& options = {}) const {
    delta_models::put(path("changed"), changed);
    return read_everything(path("base.safetensors"), path("changed"), options);
  }
};

template <class Number>
Number number_at(const bytes& file, std::size_t at) {
  Number made{};
  std::memcpy(&made, file.data() + at, sizeof made);
  return made;
}
void put_digest(bytes& file, std::size_t at, const digest128& digest) {
  std::memcpy(file.data() + at, &digest.low, 8);
  std::memcpy(file.data() + at + 8, &digest.high, 8);
}

// Gives a changed description the digests that the header needs, as an attacker would.
void sign(bytes& file) {
  const auto begin = static_cast<std::size_t>(number_at<std::int64_t>(file, 16));
  const auto length = static_cast<std::int64_t>(file.size() - begin);
  std::memcpy(file.data() + 24, &length, sizeof length);
  put_digest(file, 32, xxh3(std::span(file).subspan(begin)));
  put_digest(file, 48, xxh3(std::span(file).first(48)));
}

}  // namespace

TEST_CASE("the delta of these tests is read when nothing is changed") {
  const written_delta made;
  CHECK(made.read(made.file).value() == made.next);
}

TEST_CASE("a delta that was cut is refused before a tensor is read") {
  const written_delta made;
  for (std::size_t length = 0; length < made.file.size(); length += 16) {
    INFO(length);
    const auto read = made.read(bytes(made.file.begin(), made.file.begin() + static_cast<std::ptrdiff_t>(length)));
    REQUIRE_FALSE(read);
    CHECK(read.error().code == errc::bad_format);
    CHECK(read.error().file == made.path("changed").string());
  }
  bytes longer = made.file;
  longer.push_back(std::byte{0});
  CHECK(made.read(longer).error().code == errc::bad_format);
}

TEST_CASE("each flipped bit of a delta is found") {
  const written_delta made;
  dice random(random_seed::seed());
  INFO("SHARDMESH_SEED=" << random_seed::seed());
  for (std::size_t at = 0; at < made.file.size(); ++at) {
    INFO(at);
    bytes changed = made.file;
    changed[at] ^= static_cast<std::byte>(1 << random.below(8));
    const auto read = made.read(changed);
    REQUIRE_FALSE(read);
    CHECK(read.error().file == made.path("changed").string());
  }
}

TEST_CASE("a flipped bit of a stored block names the key and the box") {
  const scratch_folder folder;
  dice random(9);
  tensors base, next;
  base["dense"] = delta_models::random_tensor(random, dtype::uint8, {100});
  next["dense"] = delta_models::random_tensor(random, dtype::uint8, {100});
  delta_models::write(folder / "base.safetensors", base);
  delta_models::write(folder / "next.safetensors", next);
  delta_models::try_delta(folder / "base.safetensors", folder / "next.safetensors", folder / "d").value();
  bytes changed = delta_models::bytes_of(folder / "d");
  changed[64] ^= std::byte{1};  // the first stored byte
  delta_models::put(folder / "d", changed);
  const auto read = read_everything(folder / "base.safetensors", folder / "d");
  REQUIRE_FALSE(read);
  CHECK(read.error().code == errc::checksum_mismatch);
  CHECK(read.error().key == "dense");
  CHECK(read.error().boxes == std::vector{box{{0}, {100}}});
  CHECK(read.error().expected.starts_with("xxh3-128 "));
  CHECK(read.error().found.size() == 32);
}

TEST_CASE("flipped bits of an object in a delta are found") {
  const std::filesystem::path golden =
      std::filesystem::path(SHARDMESH_TEST_DATA) / "golden" / "single_rank" / "checkpoint";
  const scratch_folder folder;
  delta_models::try_delta(golden, golden, folder / "d").value();
  const bytes file = delta_models::bytes_of(folder / "d");
  const auto description = static_cast<std::size_t>(number_at<std::int64_t>(file, 16));
  REQUIRE(description > 64);  // the objects are the only stored bytes
  for (std::size_t at = 64; at < description; at += 97) {
    INFO(at);
    bytes changed = file;
    changed[at] ^= std::byte{4};
    delta_models::put(folder / "changed", changed);
    const auto read = read_everything(golden, folder / "changed");
    REQUIRE_FALSE(read);
    CHECK(read.error().code == errc::checksum_mismatch);
    CHECK_FALSE(read.error().key.empty());
  }
}

TEST_CASE("a changed description with the right digests ends in an error or in tensors, never in a crash") {
  const written_delta made;
  const auto begin = static_cast<std::size_t>(number_at<std::int64_t>(made.file, 16));
  const std::uint64_t first = random_seed::seed();
  std::int64_t refused = 0;
  const std::uint64_t rounds = random_seed::rounds(1500);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    INFO("SHARDMESH_SEED=" << first + round);
    dice random(first + round);
    bytes changed = made.file;
    for (std::int64_t i = 1 + random.below(3); i > 0; --i)
      changed[begin + random.one_of(changed.size() - begin)] =
          random.one_in(3) ? std::byte{0xff} : delta_models::random_byte(random);
    if (random.one_in(4)) changed.resize(begin + random.one_of(changed.size() - begin));
    sign(changed);
    const auto read = made.read(changed);
    refused += read ? 0 : 1;
    if (!read) CHECK_FALSE(read.error().message.empty());
  }
  CHECK(refused > static_cast<std::int64_t>(rounds / 2));
}

TEST_CASE("strides for another number of dimensions are refused when the delta is opened") {
  const written_delta made;
  bytes changed = made.file;
  // The first tensor, behind the header and the number of tensors.
  auto at = static_cast<std::size_t>(number_at<std::int64_t>(changed, 16)) + 8;
  const auto skip_text = [&] { at += 4 + number_at<std::uint32_t>(changed, at); };
  skip_text();  // key
  at += 4 + 1;  // a path of one step, which is a name
  skip_text();
  skip_text();                                              // dtype
  at += 1 + 8 * std::to_integer<std::size_t>(changed[at]);  // shape
  skip_text();                                              // layout
  changed[at] |= std::byte{4};                              // strides follow
  at += 1 + 4;                                              // flags, and the memory format
  skip_text();                                              // foreign dtype
  bytes strides(1 + 3 * 8);
  strides[0] = std::byte{3};
  changed.insert(changed.begin() + static_cast<std::ptrdiff_t>(at), strides.begin(), strides.end());
  sign(changed);
  const auto read = made.read(changed);
  REQUIRE_FALSE(read);
  INFO(to_string(read.error()));
  CHECK(read.error().code == errc::bad_format);
  CHECK(read.error().message == "has strides for another number of dimensions");
  CHECK_FALSE(read.error().key.empty());
}

TEST_CASE("a delta of another version, with other blocks, or of another program is refused by name") {
  const written_delta made;
  const auto changed = [&](std::size_t at, std::byte value) {
    bytes file = made.file;
    file[at] = value;
    sign(file);
    return made.read(file).error();
  };
  CHECK(changed(0, std::byte{'X'}).message == "the file is not a delta");
  const error version = changed(8, std::byte{2});
  CHECK(version.code == errc::unsupported);
  CHECK(version.expected == "1");
  CHECK(version.found == "2");
  CHECK(changed(15, std::byte{0x7f}).message == "the delta has blocks of an unknown size");
  CHECK(changed(12, std::byte{0x40}).code == errc::bad_format);  // the blocks do not fit the description any more
}

TEST_CASE("stored blocks that decompress to implausibly many bytes are refused when the delta is opened") {
  const scratch_folder folder;
  tensors base, next;
  base["a"] = {dtype::uint8, {1}, bytes(1)};
  next["zeros"] = {dtype::uint8, {1 << 22}, bytes(1 << 22)};
  delta_models::write(folder / "base.safetensors", base);
  delta_models::write(folder / "next.safetensors", next);
  delta_models::try_delta(folder / "base.safetensors", folder / "next.safetensors", folder / "d").value();
  CHECK(read_everything(folder / "base.safetensors", folder / "d").value() == next);
  const open_options strict{.limits = {.decoded_bytes = 1 << 20}};
  const auto refused = open_delta(delta_models::opened(folder / "base.safetensors"), folder / "d", strict);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::bad_format);
  CHECK(refused.error().hint == "raise the limit factor, if you trust the file");
}
