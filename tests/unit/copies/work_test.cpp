// SPDX-License-Identifier: Apache-2.0
// Tests that commands do work in proportion to the number of tensors. Quadratic work would allocate quadratically, so
// the test counts allocated bytes. It does not measure time, because machines differ.
#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "counted_new.hpp"
#include "safetensors_files.hpp"

import shardmesh.checkpoint;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

// A file of `count` different tensors of four bytes each.
std::string many_tensors(int count) {
  std::string json = "{";
  for (int i = 0; i < count; ++i)
    json += (i > 0 ? ",\"layer." : "\"layer.") + std::to_string(i) +
            R"(.w":{"dtype":"U8","shape":[4],"data_offsets":[)" + std::to_string(4 * i) + "," +
            std::to_string(4 * i + 4) + "]}";
  std::string file = safetensors_files::bytes(json + "}", static_cast<std::size_t>(4 * count));
  for (int i = 0; i < count; ++i)
    file[file.size() - 4 * static_cast<std::size_t>(count - i)] = static_cast<char>(i >> 8);
  return file;
}

// The bytes that a command allocates for `count` tensors.
template <class Command>
std::int64_t work_of(int count, const Command& command) {
  const safetensors_files::temporary_folder folder;
  const fs::path source = folder.write("many.safetensors", many_tensors(count));
  auto reader = open_checkpoint(source).value();
  REQUIRE(convert(*reader, folder.path() / "dcp", {.format = target_format::dcp, .durable = false, .threads = 1}));
  const std::int64_t before = counted_new::all_bytes;
  command(source, folder.path() / "dcp", folder.path() / "out");
  return counted_new::all_bytes - before;
}

template <class Command>
void grows_with_the_number(const Command& command) {
  SKIP_WHERE_NOTHING_IS_COUNTED();
  const std::int64_t few = work_of(1000, command), many = work_of(4000, command);
  INFO(few << " bytes allocated for 1000 tensors, " << many << " for 4000");
  CHECK(many < 6 * few);  // a factor of 4 is linear, 16 is quadratic
}

}  // namespace

TEST_CASE("diff's work grows with the number of tensors, not with its square") {
  grows_with_the_number([](const fs::path& left, const fs::path& right, const fs::path&) {
    auto a = open_checkpoint(left).value();
    auto b = open_checkpoint(right).value();
    CHECK(diff(whole_side(*a), whole_side(*b), {.threads = 1}).value().differences.empty());
  });
}

TEST_CASE("verify's work grows with the number of tensors, not with its square") {
  grows_with_the_number([](const fs::path&, const fs::path& right, const fs::path&) {
    auto reader = open_checkpoint(right).value();
    CHECK(verify(*reader, {.threads = 1}).value().ok());
  });
}

TEST_CASE("looking for equal tensors costs work in proportion to their number") {
  for (const dedup_rule how : {dedup_rule::tied, dedup_rule::equal})
    grows_with_the_number([&](const fs::path&, const fs::path& right, const fs::path& out) {
      auto reader = open_checkpoint(right).value();
      CHECK(convert(*reader, out, {.format = target_format::hf, .dedup = how, .durable = false, .threads = 1}));
    });
}

TEST_CASE("reshard's work grows with the number of tensors, not with its square") {
  grows_with_the_number([](const fs::path&, const fs::path& right, const fs::path& out) {
    auto reader = open_checkpoint(right).value();
    reshard_options options;
    options.mesh = device_mesh::make(std::array<std::int64_t, 1>{4}, {"dp"}).value();
    options.durable = false;
    options.threads = 1;
    CHECK(reshard(*reader, out, options));
  });
}

TEST_CASE("loading tensor by tensor looks every key up without going through all of them") {
  grows_with_the_number([](const fs::path&, const fs::path& right, const fs::path&) {
    auto reader = open_checkpoint(right).value();
    for (const tensor_entry& tensor : reader->contents().tensors)
      CHECK(load_tensor(*reader, tensor.key, {.threads = 1}).has_value());
  });
}
