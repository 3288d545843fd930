// SPDX-License-Identifier: Apache-2.0
// Tests checkpoints on a web server with file names that read as something else in a URL: no other object is read in
// their place.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <http_server.hpp>
#include <iterator>
#include <scratch_folder.hpp>
#include <string>
#include <vector>

import shardmesh.checkpoint;
import shardmesh.remote;

using namespace shardmesh;
using http_server::answer;

namespace {

// The bytes of a safetensors file with one tensor.
std::string one_tensor() {
  const scratch_folder scratch;
  std::vector<float> values{1, 2, 3};
  const tensor_view view{
      reinterpret_cast<std::byte*>(values.data()), dtype::float32, {}, {3}, contiguous_strides(extents{3})};
  const std::vector<save_tensor> tensors{{"w", {}, {3}, {{box::whole({3}), view, 0}}}};
  REQUIRE(save(scratch / "m.safetensors", tensors, target_format::safetensors));
  std::ifstream stream(scratch / "m.safetensors", std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

error refused(const http_server::server& server, const std::string& folder) {
  const auto opened = open_checkpoint(server.url(folder));
  REQUIRE(!opened);
  return opened.error();
}

bool was_asked_for(const http_server::server& server, const std::string& path) {
  const auto seen = server.seen();
  return std::any_of(seen.begin(), seen.end(), [&](const auto& one) { return one.path() == path; });
}

}  // namespace

TEST_CASE("a file that an index names with a query or an encoded character is an error that names it") {
  for (const std::string name : {"a.safetensors?b.safetensors", "%61.safetensors"}) {
    INFO(name);
    http_server::server server;
    server.put("/run/model.safetensors.index.json", R"({"weight_map": {"w": ")" + name + R"("}})");
    server.put("/run/a.safetensors", one_tensor());
    server.put("/run/%61.safetensors", one_tensor());  // as servers do
    const error why = refused(server, "/run");
    CHECK(why.code == errc::unsupported);
    CHECK(why.message == "the name of a file in this folder reads as something else in a URL");
    CHECK(why.file == server.url("/run"));
    CHECK(why.found == name);
    CHECK(!was_asked_for(server, "/run/a.safetensors"));
    CHECK(!was_asked_for(server, "/run/%61.safetensors"));
  }
}

TEST_CASE("a listed file with an encoded character in its name is an error that names it") {
  http_server::server server;
  server.on("/run", [](const http_server::request&) { return answer(301, "", "Location: /run/\r\n"); });
  server.on("/run/", [](const http_server::request&) {
    return answer(200, R"([{"name": "%61.safetensors", "type": "file", "size": 80}])",
                  "Content-Type: application/json\r\n");
  });
  server.put("/run/%61.safetensors", one_tensor());
  const error why = refused(server, "/run");
  CHECK(why.code == errc::unsupported);
  CHECK(why.found == "%61.safetensors");
  CHECK(!was_asked_for(server, "/run/%61.safetensors"));
}

TEST_CASE("a side file with a question mark in its name is not copied, and the note says why") {
  const std::string model = one_tensor();
  http_server::server server;
  server.on("/run", [](const http_server::request&) { return answer(301, "", "Location: /run/\r\n"); });
  server.on("/run/", [&](const http_server::request&) {
    return answer(200,
                  R"([{"name": "model.safetensors", "type": "file", "size": )" + std::to_string(model.size()) +
                      R"(}, {"name": "notes?.txt", "type": "file", "size": 2}])",
                  "Content-Type: application/json\r\n");
  });
  server.put("/run/model.safetensors", model);
  const auto opened = open_checkpoint(server.url("/run"));
  REQUIRE(opened);
  const scratch_folder scratch;
  const auto report = convert(**opened, scratch / "copy", {.format = target_format::hf});
  REQUIRE(report);
  CHECK(report->notes ==
        std::vector<std::string>{
            "not copied: notes?.txt (the name of a file in this folder reads as something else in a URL)"});
}
