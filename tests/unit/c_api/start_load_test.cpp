// SPDX-License-Identifier: Apache-2.0
// Tests background loads through the C interface: which tensor arrives when, and every way in which a load can end.
#include <algorithm>
#include <atomic>
#include <c_answers.hpp>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

import shardmesh;

using namespace c_answers;

namespace {

// Six int32 tensors in one folder, and memory for them.
struct saved {
  scratch_folder scratch;
  std::map<std::string, std::vector<std::int32_t>> values, memory;

  saved() {
    std::vector<c::save_tensor> all;
    for (int t = 0; t < 6; ++t) {
      std::vector<std::int32_t>& one = values["t" + std::to_string(t)];
      for (int i = 0; i < 15; ++i) one.push_back(100 * t + i);
    }
    for (const auto& [key, one] : values) all.emplace_back(key, c::view(one.data(), {5, 3}));
    c::save(scratch / "folder", all);
    for (const auto& [key, one] : values) memory[key].assign(15, -1);
  }
  std::vector<c::load_request> requests() {
    std::vector<c::load_request> made;
    for (auto& [key, one] : memory) made.push_back({key, c::view(one.data(), {5, 3}), {}});
    return made;
  }
  c::checkpoint open() const { return c::checkpoint::open(scratch / "folder"); }
};

std::int32_t status_of_wait(c::loading& loading) {
  const auto problems = problems_of([&] { loading.wait(); });
  return problems.empty() ? SHARDMESH_OK : problems[0].status;
}

}  // namespace

TEST_CASE("every key arrives once, in the order of the files, when its values are there") {
  saved state;
  const c::checkpoint from = state.open();
  std::vector<std::string> arrived;
  bool is_there = true;
  c::start_load_options options;
  options.check = true;
  options.on_arrival = [&](const std::string& key) {
    arrived.push_back(key);
    is_there = is_there && state.memory.at(key) == state.values.at(key);
    return true;
  };
  c::loading loading(from, state.requests(), options);
  CHECK(loading.wait() == 6 * 15 * 4);
  CHECK(loading.wait() == 6 * 15 * 4);
  CHECK(is_there);
  std::vector<std::string> stored;
  for (const c::tensor_entry& entry : from.tensors()) stored.push_back(entry.key);
  CHECK(arrived == stored);
  CHECK(state.memory == state.values);
  CHECK(loading.done());
  CHECK(loading.bytes() == 6 * 15 * 4);
}

TEST_CASE("what on_arrival throws ends the load and leaves wait, also of the last key") {
  for (const std::size_t last : {std::size_t{1}, std::size_t{6}}) {
    saved state;
    const c::checkpoint from = state.open();
    std::size_t told = 0;
    c::start_load_options options;
    options.on_arrival = [&](const std::string& key) -> bool {
      if (++told == last) throw std::out_of_range(key);
      return true;
    };
    c::loading loading(from, state.requests(), options);
    CHECK_THROWS_AS(loading.wait(), std::out_of_range);
    CHECK(told == last);
  }
}

TEST_CASE("a load ends as cancelled when on_arrival says no, or another thread cancels") {
  for (const bool by_another : {false, true}) {
    saved state;
    const c::checkpoint from = state.open();
    std::atomic<int> told = 0;
    std::atomic<bool> is_cancelled = false;
    c::start_load_options options;
    options.on_arrival = [&](const std::string&) {
      ++told;
      while (by_another && !is_cancelled) std::this_thread::yield();
      return by_another;
    };
    c::loading loading(from, state.requests(), options);
    if (by_another) {
      while (told == 0) std::this_thread::yield();
      CHECK_FALSE(loading.done());
      loading.cancel();
      is_cancelled = true;
    }
    CHECK(status_of_wait(loading) == SHARDMESH_CANCELLED);
    CHECK(told == 1);
    loading.cancel();
  }
}

TEST_CASE("a load whose time is over ends as that") {
  // Two tensors of zeros, loaded one after the other, in a sparse file that takes no disk space.
  const scratch_folder scratch;
  constexpr std::int64_t size = std::int64_t{72} << 20;
  const std::string header = R"({"a":{"dtype":"U8","shape":[75497472],"data_offsets":[0,75497472]},)"
                             R"("b":{"dtype":"U8","shape":[75497472],"data_offsets":[75497472,150994944]}})";
  const std::uint64_t length = header.size();
  std::ofstream(scratch / "large.safetensors", std::ios::binary)
      << std::string_view(reinterpret_cast<const char*>(&length), 8) << header;
  std::filesystem::resize_file(scratch / "large.safetensors", 8 + length + 2 * size);
  const c::checkpoint from = c::checkpoint::open(scratch / "large.safetensors");
  std::vector<std::uint8_t> a(size), b(size);
  c::start_load_options options;
  options.timeout = std::chrono::seconds(2);
  options.on_arrival = [&](const std::string&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2100));
    return true;
  };
  c::loading loading(from, {{"a", c::view(a.data(), {size}), {}}, {"b", c::view(b.data(), {size}), {}}}, options);
  CHECK(status_of_wait(loading) == SHARDMESH_DEADLINE_EXCEEDED);
}

TEST_CASE("the time of a load is also that of its callbacks, when all bytes are there") {
  const scratch_folder scratch;
  std::vector<float> values(64, 1);
  std::vector<c::save_tensor> tensors;
  std::vector<c::load_request> wanted;
  for (int i = 0; i < 40; ++i)
    tensors.push_back({"w" + std::to_string(i), c::view(std::as_const(values).data(), {64})});
  c::save(scratch / "w", tensors);
  const c::checkpoint from = c::checkpoint::open(scratch / "w");
  for (const c::save_tensor& one : tensors) wanted.push_back({one.key, c::view(values.data(), {64}), {}});
  int arrivals = 0;
  c::start_load_options options;
  options.timeout = std::chrono::milliseconds(100);
  options.on_arrival = [&](const std::string&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return ++arrivals < 1000;
  };
  c::loading loading(from, wanted, options);
  CHECK(status_of_wait(loading) == SHARDMESH_DEADLINE_EXCEEDED);
  CHECK(arrivals < 20);
}

TEST_CASE("a load that is given back while it goes on ends before that returns") {
  saved state;
  const c::checkpoint from = state.open();
  std::atomic<int> told = 0;
  {
    c::start_load_options options;
    options.on_arrival = [&](const std::string&) {
      ++told;
      return true;
    };
    const c::loading loading(from, state.requests(), options);
  }
  const int after = told;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(told == after);
}

TEST_CASE("what is wrong with requests is told at once, what is wrong with the checkpoint by wait") {
  saved state;
  const c::checkpoint from = state.open();
  std::vector<std::int32_t> memory(15);
  const auto corner = problems_of([&] { c::loading(from, {{"t1", c::view(memory.data(), {5, 2}), {}}}).wait(); });
  REQUIRE(corner.size() == 1);
  CHECK(corner[0].status == SHARDMESH_SHAPE_MISMATCH);
  CHECK(corner[0].key == "t1");
  c::loading missing(from, {{"t9", c::view(memory.data(), {5, 3}), {}}});
  const auto problems = problems_of([&] { missing.wait(); });
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].status == SHARDMESH_MISSING_KEY);
  CHECK(problems[0].key == "t9");
  shardmesh_loading* made = nullptr;
  shardmesh_start_load_options options{};
  options.struct_size = sizeof options;
  options.timeout_milliseconds = -1;
  CHECK(shardmesh_start_load(from.c(), nullptr, 0, &options, &made, nullptr) == SHARDMESH_INVALID_ARGUMENT);
  options.timeout_milliseconds = 0;
  options.threads = -1;
  CHECK(shardmesh_start_load(from.c(), nullptr, 0, &options, &made, nullptr) == SHARDMESH_INVALID_ARGUMENT);
  CHECK(shardmesh_start_load(nullptr, nullptr, 0, nullptr, &made, nullptr) == SHARDMESH_INVALID_ARGUMENT);
  CHECK(shardmesh_start_load(from.c(), nullptr, 1, nullptr, &made, nullptr) == SHARDMESH_INVALID_ARGUMENT);
  CHECK(made == nullptr);
  CHECK(shardmesh_loading_wait(nullptr, nullptr, nullptr) == SHARDMESH_INVALID_ARGUMENT);
  CHECK(shardmesh_loading_cancel(nullptr, nullptr) == SHARDMESH_INVALID_ARGUMENT);
  CHECK(shardmesh_loading_describe(nullptr, nullptr, nullptr) == SHARDMESH_INVALID_ARGUMENT);
  shardmesh_loading_free(nullptr);
  REQUIRE(shardmesh_start_load(from.c(), nullptr, 0, nullptr, &made, nullptr) == SHARDMESH_OK);
  CHECK(shardmesh_loading_wait(made, nullptr, nullptr) == SHARDMESH_OK);
  shardmesh_loading_free(made);
}

TEST_CASE("check finds a byte that changed, which a load without it does not see") {
  saved state;
  const c::checkpoint stored = state.open();
  const c::chunk_entry chunk = stored.chunks(stored.find_tensor("t4")).at(0);
  const std::filesystem::path file = std::filesystem::path(state.scratch / "folder") / chunk.file;
  std::string bytes;
  {
    std::ifstream in(file, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto& values = state.values.at("t4");
  const auto at = bytes.find(std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4));
  REQUIRE(at != std::string::npos);
  flip_byte(file, static_cast<std::int64_t>(at));
  const c::checkpoint from = state.open();
  c::loading plain(from, state.requests());
  CHECK(status_of_wait(plain) == SHARDMESH_OK);
  c::start_load_options options;
  options.check = true;
  c::loading checked(from, state.requests(), options);
  const auto problems = problems_of([&] { checked.wait(); });
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].status == SHARDMESH_CHECKSUM_MISMATCH);
  CHECK(problems[0].key == "t4");
}
