// SPDX-License-Identifier: Apache-2.0
// Counts the requests of loads from a web server.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <http_server.hpp>
#include <iterator>
#include <numeric>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
#include <watchdog.hpp>

import shardmesh.checkpoint;
import shardmesh.remote;

using namespace shardmesh;

namespace {

tensor_view view_of(std::vector<float>& values, const extents& sizes) {
  return {reinterpret_cast<std::byte*>(values.data()), dtype::float32, {}, sizes, contiguous_strides(sizes)};
}

// Saves tensors in one file, and serves it.
std::string served(http_server::server& server, const std::vector<save_tensor>& tensors) {
  const scratch_folder scratch;
  REQUIRE(save(scratch / "m.safetensors", tensors, target_format::safetensors));
  std::ifstream stream(scratch / "m.safetensors", std::ios::binary);
  std::string content(std::istreambuf_iterator<char>(stream), {});
  server.put("/m.safetensors", std::move(content));
  return server.url("/m.safetensors");
}

// Saves float32 tensors of `elements` elements each as a DCP folder of one file, and serves it.
std::string served_folder(http_server::server& server, int count, std::int64_t elements) {
  const scratch_folder scratch;
  std::vector<std::vector<float>> values;
  std::vector<save_tensor> tensors;
  for (int i = 0; i < count; ++i) {
    std::vector<float>& one = values.emplace_back(static_cast<std::size_t>(elements), static_cast<float>(i));
    tensors.push_back(
        {"t" + std::to_string(1000 + i), {}, {elements}, {{box::whole({elements}), view_of(one, {elements}), 0}}});
  }
  REQUIRE(save(scratch / "run", tensors, target_format::dcp));
  for (const auto& entry : std::filesystem::directory_iterator(scratch / "run")) {
    std::ifstream stream(entry.path(), std::ios::binary);
    std::string content(std::istreambuf_iterator<char>(stream), {});
    server.put("/run/" + entry.path().filename().string(), std::move(content));
  }
  return server.url("/run");
}

int requests_for_bytes(const http_server::server& server) {
  const auto seen = server.seen();
  return static_cast<int>(std::count_if(seen.begin(), seen.end(), [](const auto& one) { return one.method == "GET"; }));
}

}  // namespace

TEST_CASE("columns of a tensor on a web server are loaded in a few requests") {
  const watchdog dog{std::chrono::seconds(120)};
  http_server::server server;
  constexpr std::int64_t rows = 512, columns = 4096;  // 8 MiB
  std::vector<float> values(rows * columns);
  std::iota(values.begin(), values.end(), 0.0F);
  const tensor_view whole = view_of(values, {rows, columns});
  const std::string url = served(server, {{"w", {}, {rows, columns}, {{box::whole({rows, columns}), whole, 0}}}});
  const auto opened = open_checkpoint(url).value();
  server.forget_seen();
  const box part{{0, 1024}, {rows, 1024}};  // runs of 4 KiB, and gaps of 12 KiB
  const host_tensor loaded = load_tensor(*opened, "w", part).value();
  std::vector<float> wanted;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 1024; column < 2048; ++column)
      wanted.push_back(values[static_cast<std::size_t>(row * columns + column)]);
  CHECK(std::memcmp(loaded.bytes().data(), wanted.data(), wanted.size() * 4) == 0);
  CHECK(requests_for_bytes(server) <= 4);
}

TEST_CASE("hundreds of small tensors on a web server are loaded in a few requests") {
  const watchdog dog{std::chrono::seconds(120)};
  http_server::server server;
  std::vector<std::vector<float>> values;
  std::vector<save_tensor> tensors;
  for (int i = 0; i < 500; ++i) {
    std::vector<float>& one = values.emplace_back(256, static_cast<float>(i));
    tensors.push_back({"t" + std::to_string(1000 + i), {}, {256}, {{box::whole({256}), view_of(one, {256}), 0}}});
  }
  const std::string url = served(server, tensors);
  const auto opened = open_checkpoint(url).value();
  server.forget_seen();
  std::vector<std::vector<float>> loaded(values.size(), std::vector<float>(256));
  std::vector<load_request> requests;
  for (std::size_t i = 0; i < values.size(); ++i)
    requests.push_back({tensors[i].key, box::whole({256}), view_of(loaded[i], {256})});
  REQUIRE(load(*opened, requests));
  CHECK(loaded == values);
  CHECK(requests_for_bytes(server) <= 50);
}

TEST_CASE("the representations of hundreds of tensors on a web server are identified in few requests") {
  const watchdog dog{std::chrono::seconds(120)};
  // The ends of small items become one range. Between large items, the end of one and the beginning of the next do.
  for (const auto& [count, elements, most_requests] :
       {std::tuple{300, std::int64_t{16}, 8}, std::tuple{300, std::int64_t{5000}, 8},
        std::tuple{40, std::int64_t{50'000}, 44}}) {
    INFO(count << " tensors of " << elements << " elements");
    http_server::server server;
    const std::string url = served_folder(server, count, elements);
    const auto opened = open_checkpoint(url).value();
    server.forget_seen();
    opened->identify_opaque_tensors();
    CHECK(requests_for_bytes(server) <= most_requests);
    for (const tensor_entry& tensor : opened->contents().tensors) CHECK(tensor.opaque_type.empty());
    server.forget_seen();
    opened->identify_opaque_tensors();
    CHECK(server.seen().empty());
    CHECK(load_tensor(*opened, "t1007"));
  }
}

TEST_CASE("each range of an object is one request, and the client learns what a request costs") {
  const watchdog dog{std::chrono::seconds(120)};
  http_server::server server;
  std::string content(std::size_t{1} << 20, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 + i / 256);
  server.put("/object", content);
  const remote::http_client client;
  CHECK(client.bytes_per_request(server.url("/object")) == 512 << 10);
  std::vector<std::string> parts(8, std::string(100'000, '\0'));
  std::vector<source_range> ranges;
  for (std::size_t i = 0; i < parts.size(); ++i)
    ranges.push_back({static_cast<std::int64_t>(i * 120'000), std::as_writable_bytes(std::span(parts[i]))});
  const remote::http_request object{.url = server.url("/object")};
  REQUIRE(client.read(object, ranges, "\"1\"", std::ssize(content)));
  for (std::size_t i = 0; i < parts.size(); ++i) CHECK(parts[i] == content.substr(i * 120'000, 100'000));
  CHECK(server.seen().size() == 8);
  const std::int64_t cost = client.bytes_per_request(server.url("/another"));
  CHECK(cost >= 64 << 10);
  CHECK(cost <= 8 << 20);
  CHECK(client.bytes_per_request("http://other.invalid/object") == 512 << 10);
}
