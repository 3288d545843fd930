// SPDX-License-Identifier: Apache-2.0
// Tests what deltas refuse: other bases, entries that they cannot hold, wrong options, and existing destinations.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <scratch_folder.hpp>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "delta_models.hpp"

using namespace shardmesh;
using delta_models::tensors;

namespace {

// Two checkpoints, "base.safetensors" and "next.safetensors", and their delta "d".
struct written_delta {
  scratch_folder folder;
  tensors base, next;

  written_delta() {
    dice random(5);
    base = {{"kept", delta_models::random_tensor(random, dtype::float32, {4, 40})},
            {"changed", delta_models::random_tensor(random, dtype::float32, {4, 40})}};
    next = base;
    next["changed"].bytes[2 * 160] ^= std::byte{1};  // in row 2
    delta_models::write(path("base.safetensors"), base);
    delta_models::write(path("next.safetensors"), next);
    make().value();
  }
  std::filesystem::path path(const std::string& name) const { return folder / name; }
  result<delta_report> make(const delta_options& options = {.block_bytes = 160}, const std::string& file = "d") const {
    return delta_models::try_delta(path("base.safetensors"), path("next.safetensors"), path(file), options);
  }
  result<std::unique_ptr<checkpoint_reader>> over(tensors other) const {
    delta_models::write(path("other"), other);
    return open_delta(delta_models::opened(path("other")), path("d"));
  }
};

// A safetensors file with one tensor of 4 bits per element.
// Rows of three elements: with an even number, two elements would be one of float4_e2m1fn_x2, which has a whole byte.
void write_float4(const std::filesystem::path& file) {
  const std::string_view header = R"({"packed":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}})";
  std::vector<std::byte> bytes(8);
  bytes[0] = static_cast<std::byte>(header.size());
  for (const char c : header) bytes.push_back(static_cast<std::byte>(c));
  bytes.resize(bytes.size() + 3);
  delta_models::put(file, bytes);
}

}  // namespace

TEST_CASE("a base with other elements is refused by the blocks that are read, and only by those") {
  const written_delta made;
  for (const char* const key : {"kept", "changed"}) {
    INFO(key);
    tensors other = made.base;
    other[key].bytes[3 * 160] ^= std::byte{1};  // in row 3
    const auto reader = made.over(other).value();
    const tensor_entry& entry = *reader->contents().find(key);
    const box before{{0, 0}, {3, 40}};
    CHECK(delta_models::read(*reader, entry, before).value().bytes == delta_models::part_of(made.next.at(key), before));
    const auto refused = delta_models::read(*reader, entry, box::whole(entry.shape));
    REQUIRE_FALSE(refused);
    const error& why = refused.error();
    CHECK(why.code == errc::checksum_mismatch);
    CHECK(why.message == "the base is not the checkpoint from which the delta was made");
    CHECK(why.key == key);
    CHECK(why.file == made.path("other").string());
    CHECK(why.boxes == std::vector{box{{3, 0}, {1, 40}}});
    CHECK(why.expected.size() == 32 + std::string_view("xxh3-128 ").size());
    CHECK(why.found.size() == 32);
    CHECK(why.expected != "xxh3-128 " + why.found);
    CHECK(why.hint == "apply the delta to that checkpoint");
    std::filesystem::remove_all(made.path("other"));
  }
}

TEST_CASE("a base that lacks tensors, or has them with another dtype or shape, is refused with all of them") {
  const written_delta made;
  const auto problems = [&](const tensors& other) {
    const auto reader = made.over(other);
    REQUIRE_FALSE(reader);
    std::filesystem::remove_all(made.path("other"));
    return reader.error().problems();
  };
  tensors other = made.base;
  other["kept"].shape = {40, 4};
  other["changed"].type = dtype::int32;
  const auto found = problems(other);
  REQUIRE(found.size() == 2);
  CHECK(found[0].code == errc::dtype_mismatch);
  CHECK(found[0].key == "changed");
  CHECK(found[0].expected == "float32");
  CHECK(found[0].found == "int32");
  CHECK(found[1].code == errc::shape_mismatch);
  CHECK(found[1].key == "kept");
  CHECK(found[1].expected == "[4, 40]");
  CHECK(found[1].found == "[40, 4]");
  CHECK(found[1].file == made.path("other").string());
  other = made.base;
  other.erase("kept");
  const auto missing = problems(other);
  REQUIRE(missing.size() == 1);
  CHECK(missing[0].code == errc::missing_key);
  CHECK(missing[0].key == "kept");
}

TEST_CASE("a file that is not a delta, or does not exist, is named") {
  const written_delta made;
  const auto refused = open_delta(delta_models::opened(made.path("base.safetensors")), made.path("next.safetensors"));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::bad_format);
  CHECK(refused.error().message == "the file is not a delta");
  CHECK(refused.error().file == made.path("next.safetensors").string());
  const auto none = open_delta(delta_models::opened(made.path("base.safetensors")), made.path("none"));
  REQUIRE_FALSE(none);
  CHECK(none.error().code == errc::io);
}

TEST_CASE("a delta without its base is no checkpoint, and the error names the remedy") {
  const written_delta made;
  const auto refused = open_checkpoint(made.path("d"));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unsupported);
  CHECK(refused.error().file == made.path("d").string());
  CHECK(refused.error().hint == "apply it to its base with 'shardmesh delta apply', or call open_delta");
}

TEST_CASE("an existing file is replaced only with overwrite, and the checkpoints never") {
  const written_delta made;
  CHECK(made.make().error().code == errc::destination_exists);
  CHECK(made.make({.block_bytes = 160, .overwrite = true}).value().changed == 1);
  for (const char* const file : {"base.safetensors", "next.safetensors"}) {
    INFO(file);
    const error refused = made.make({.overwrite = true}, file).error();
    CHECK(refused.code == errc::invalid_argument);
    CHECK(delta_models::read_all(*delta_models::opened(made.path("base.safetensors"))).value() == made.base);
  }
}

TEST_CASE("levels and block sizes out of their ranges are refused") {
  const written_delta made;
  for (const int level : {-8, 20}) {
    const error refused = made.make({.level = level}, "e").error();
    CHECK(refused.code == errc::invalid_argument);
    CHECK(refused.expected == "-7 to 19");
    CHECK(refused.found == std::to_string(level));
  }
  for (const std::int64_t size : {std::int64_t{0}, std::int64_t{63}, (std::int64_t{16} << 20) + 1}) {
    const error refused = made.make({.block_bytes = size}, "e").error();
    CHECK(refused.code == errc::invalid_argument);
    CHECK(refused.found == std::to_string(size));
  }
  CHECK_FALSE(std::filesystem::exists(made.path("e")));
}

TEST_CASE("a cancelled delta leaves no file") {
  const written_delta made;
  std::stop_source stop;
  stop.request_stop();
  CHECK(made.make({.cancel = stop.get_token()}, "e").error().code == errc::cancelled);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(made.folder.path))
    names.push_back(entry.path().filename().string());
  CHECK(names.size() == 3);  // the checkpoints and the delta
}

TEST_CASE("the reads of a delta work under its limits") {
  const written_delta made;
  const std::stop_source stop;
  std::atomic<int> with_limits = 0, without = 0;
  const auto progress = [&](std::int64_t) {
    const detail::call_in_progress* const call = detail::current_call();
    ++(call != nullptr && call->limits.cancel == stop.get_token() ? with_limits : without);
  };
  REQUIRE(made.make({.cancel = stop.get_token(), .progress = progress}, "e"));
  CHECK(with_limits > 0);
  CHECK(without == 0);
}

TEST_CASE("tensors below one byte per element are refused, or left out by name") {
  const written_delta made;
  write_float4(made.path("packed.safetensors"));
  const auto try_it = [&](const delta_options& options) {
    return delta_models::try_delta(made.path("base.safetensors"), made.path("packed.safetensors"), made.path("e"),
                                   options);
  };
  const error refused = try_it({}).error();
  CHECK(refused.code == errc::unsupported);
  CHECK(refused.key == "packed");
  CHECK(refused.found == "float4_e2m1fn");
  CHECK(refused.hint == "pass skip_unsupported to leave it out");
  const delta_report report = try_it({.skip_unsupported = true}).value();
  CHECK(report.skipped_tensors == 1);
  CHECK(report.tensors == 0);
  CHECK(report.removed == 2);
  REQUIRE(report.notes.size() == 1);
  CHECK(report.notes[0] == "left out, because a delta cannot hold them: packed");
}

TEST_CASE("damage of the new checkpoint is not written into a delta as if it were whole") {
  const written_delta made;
  tensors next = made.next;
  delta_models::write(made.path("folder"), next, 2);
  int damaged = 0;
  for (const auto& entry : std::filesystem::directory_iterator(made.path("folder"))) {
    if (entry.path().extension() != ".distcp") continue;
    auto bytes = delta_models::bytes_of(entry.path());
    const auto& elements = next["kept"].bytes;
    const auto found = std::search(bytes.begin(), bytes.end(), elements.begin(), elements.begin() + 32);
    if (found != bytes.end()) *found ^= std::byte{1}, ++damaged;
    delta_models::put(entry.path(), bytes);
  }
  REQUIRE(damaged == 1);
  const auto refused = delta_models::try_delta(made.path("base.safetensors"), made.path("folder"), made.path("e"));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::checksum_mismatch);
  CHECK_FALSE(std::filesystem::exists(made.path("e")));
}
