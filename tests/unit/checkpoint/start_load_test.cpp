// SPDX-License-Identifier: Apache-2.0
// Tests watched loads: tensors in order of arrival, progress, compared checksums, and cancellation. See
// tests/distributed/start_load_test.cpp for several ranks.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint_core;
import shardmesh.checkpoint;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t tensors = 7, rows = 5, columns = 3;
constexpr target_format formats[] = {target_format::dcp, target_format::safetensors, target_format::hf,
                                     target_format::pt};

std::string key_of(std::int64_t tensor) {
  return "t" + std::to_string(tensor);
}

// int32 tensors in two row blocks each; element i of tensor t is 100 t + i.
struct saved {
  fs::path folder = fs::temp_directory_path() / ("shardmesh-start-load-" + std::to_string(std::random_device{}()));
  fs::path path;
  std::vector<std::vector<std::int32_t>> values;

  explicit saved(target_format to) : path(folder / (to == target_format::pt ? "all.pt" : "all.safetensors")) {
    fs::create_directory(folder);
    std::vector<save_tensor> all;
    for (std::int64_t t = 0; t < tensors; ++t) {
      std::vector<std::int32_t>& one = values.emplace_back();
      for (std::int64_t i = 0; i < rows * columns; ++i) one.push_back(static_cast<std::int32_t>(100 * t + i));
    }
    for (std::int64_t t = 0; t < tensors; ++t) {
      const tensor_view whole = view(values[static_cast<std::size_t>(t)]);
      const box upper{{0, 0}, {2, columns}}, lower{{2, 0}, {rows - 2, columns}};
      all.push_back({key_of(t),
                     {key_of(t)},
                     {rows, columns},
                     {{upper, subview(whole, upper), 0}, {lower, subview(whole, lower), 1}}});
    }
    REQUIRE(save(path, all, to));
  }
  ~saved() { fs::remove_all(folder); }

  static tensor_view view(std::vector<std::int32_t>& of) {
    return {reinterpret_cast<std::byte*>(of.data()), dtype::int32, {}, {rows, columns}, {columns, 1}};
  }
};

// Memory for all tensors, and requests that fill it; odd tensors are requested row by row.
struct wanted {
  std::vector<std::vector<std::int32_t>> memory;
  std::vector<load_request> requests;

  wanted() : memory(tensors, std::vector<std::int32_t>(rows * columns, -1)) {
    for (std::int64_t t = tensors; t-- > 0;) {
      const tensor_view whole = saved::view(memory[static_cast<std::size_t>(t)]);
      if (t % 2 == 0) {
        requests.push_back({key_of(t), box::whole({rows, columns}), whole});
        continue;
      }
      for (std::int64_t row = 0; row < rows; ++row) {
        const box where{{row, 0}, {1, columns}};
        requests.push_back({key_of(t), where, subview(whole, where)});
      }
    }
  }
};

// Flips a bit at the first place in `file` that holds these bytes.
bool spoil(const fs::path& file, const std::vector<std::int32_t>& values) {
  std::ifstream in(file, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const std::size_t at = bytes.find(std::string(reinterpret_cast<const char*>(values.data()), 4 * columns));
  if (at == std::string::npos) return false;
  bytes[at] = static_cast<char>(bytes[at] ^ 4);
  std::ofstream(file, std::ios::binary) << bytes;
  return true;
}

}  // namespace

TEST_CASE("each key arrives once, when all that was requested of it is there, in the order of the file") {
  for (const target_format to : formats)
    for (const bool check : {false, true}) {
      INFO("format " << static_cast<int>(to) << ", check " << check);
      saved given(to);
      auto reader = open_checkpoint(given.path).value();
      wanted mine;
      std::vector<std::string> arrived;
      std::mutex lock;
      std::int64_t bytes = 0;
      bool was_there = true;
      load_options options{.check = check};
      options.progress = [&](std::int64_t now) {
        const std::scoped_lock guard(lock);
        bytes += now;
      };
      options.on_arrival = [&](const std::string& key) {
        arrived.push_back(key);
        const auto t = static_cast<std::size_t>(std::stoi(key.substr(1)));
        was_there &= mine.memory[t] == given.values[t];
      };
      auto loading = start_load(*reader, mine.requests, options).value();
      const result<load_report>& report = loading.wait();
      CHECK(loading.done());
      REQUIRE(report);
      CHECK(was_there);
      CHECK(mine.memory == given.values);
      CHECK(bytes == tensors * rows * columns * 4);
      CHECK(report->bytes_read == bytes);
      std::vector<std::string> expected;
      for (std::int64_t t = 0; t < tensors; ++t) expected.push_back(key_of(t));
      CHECK(arrived == expected);
      std::reverse(expected.begin(), expected.end());
      CHECK(report->loaded == expected);  // in the order of the requests
    }
}

TEST_CASE("a flipped bit is found when checksums are to be compared, and only then, also outside of what is wanted") {
  for (const target_format to : formats) {
    INFO("format " << static_cast<int>(to));
    saved given(to);
    std::size_t spoiled = 0;
    const std::vector<std::int32_t> target(given.values[3].begin(), given.values[3].begin() + columns);
    if (fs::is_directory(given.path)) {
      for (const auto& entry : fs::directory_iterator(given.path)) spoiled += spoil(entry.path(), target) ? 1 : 0;
    } else {
      spoiled += spoil(given.path, target) ? 1 : 0;
    }
    REQUIRE(spoiled == 1);
    for (const bool check : {false, true}) {
      auto reader = open_checkpoint(given.path).value();
      std::vector<std::int32_t> row(columns, -1);
      const box second{{1, 0}, {1, columns}};  // in the same chunk as the first row, which is damaged
      const load_request request{
          "t3", second, {reinterpret_cast<std::byte*>(row.data()), dtype::int32, {}, {1, columns}, {columns, 1}}};
      std::size_t arrivals = 0;
      load_options options{.check = check};
      options.on_arrival = [&](const std::string&) { ++arrivals; };
      const result<load_report> report = start_load(*reader, {request}, options).value().wait();
      CHECK(arrivals == (check ? 0 : 1));
      if (!check) {
        CHECK(report);
        continue;
      }
      REQUIRE_FALSE(report);
      REQUIRE(report.error().problem_count() == 1);
      CHECK(report.error().code == errc::checksum_mismatch);
      CHECK(report.error().key == "t3");
    }
  }
}

TEST_CASE("a load that is told to stop says so, and nothing arrives afterwards") {
  saved given(target_format::safetensors);
  auto reader = open_checkpoint(given.path).value();
  wanted mine;
  std::stop_source stop;
  std::vector<std::string> arrived;
  load_options options;
  options.cancel = stop.get_token();
  options.on_arrival = [&](const std::string& key) {
    arrived.push_back(key);
    if (arrived.size() == 3) stop.request_stop();
  };
  auto loading = start_load(*reader, mine.requests, options).value();
  REQUIRE_FALSE(loading.wait());
  REQUIRE(loading.wait().error().problem_count() == 1);
  CHECK(loading.wait().error().code == errc::cancelled);
  CHECK(arrived == std::vector<std::string>{"t0", "t1", "t2"});
}

TEST_CASE("what fails or is thrown on the way is the one error of the load") {
  saved given(target_format::dcp);
  auto reader = open_checkpoint(given.path).value();
  wanted mine;
  load_options options;
  options.on_arrival = [](const std::string& key) { throw std::runtime_error("enough after " + key); };
  auto loading = start_load(*reader, mine.requests, options).value();
  REQUIRE_FALSE(loading.wait());
  REQUIRE(loading.wait().error().problem_count() == 1);
  CHECK(to_string(loading.wait().error()).find("enough after t0") != std::string::npos);

  mine.requests[0].key = "t66";
  loading = start_load(*reader, mine.requests).value();
  REQUIRE_FALSE(loading.wait());
  REQUIRE(loading.wait().error().problem_count() == 1);
  CHECK(loading.wait().error().code == errc::missing_key);
  CHECK(loading.wait().error().key == "t66");
}
