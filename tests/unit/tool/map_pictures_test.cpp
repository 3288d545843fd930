// SPDX-License-Identifier: Apache-2.0
// Compares the maps of a checkpoint, as one SVG picture, with the chunks that --json lists.
#include <catch2/catch_test_macros.hpp>
#include <drawn_map.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <run_tool.hpp>
#include <set>
#include <string>

using nlohmann::json;

namespace {

const std::string golden = std::string(SHARDMESH_TEST_DATA) + "/golden/fsdp2_tp_2x2/checkpoint";

// The boxes in each tensor's map, by the caption above it.
std::map<std::string, std::multiset<std::string>> maps_of(const std::string& svg) {
  std::map<std::string, std::multiset<std::string>> maps;
  const std::string mark = "class=\"caption\"";
  for (std::size_t at = svg.find(mark); at != std::string::npos;) {
    const std::size_t next = svg.find(mark, at + 1);
    const std::string part = svg.substr(at, next == std::string::npos ? next : next - at);
    auto& titles = maps[drawn_map::between(part, ">", "</text>")];
    for (const drawn_map::rectangle& one : drawn_map::rectangles_of(part)) titles.insert(one.title);
    at = next;
  }
  return maps;
}

std::multiset<std::string> titles_of(const json& document, const json& tensor) {
  std::multiset<std::string> titles;
  for (const json& chunk : tensor.at("chunks")) {
    std::string box;
    for (std::size_t d = 0; d < chunk.at("offsets").size(); ++d) {
      const auto begin = chunk.at("offsets")[d].get<int>();
      box +=
          (d == 0 ? "" : ", ") + std::to_string(begin) + ":" + std::to_string(begin + chunk.at("sizes")[d].get<int>());
    }
    const json& rank = document.at("files").at(chunk.at("file").get<std::string>()).at("rank");
    titles.insert("[" + box + ") on " + rank.dump());
  }
  return titles;
}

}  // namespace

TEST_CASE("inspect --map --svg draws the chunks of every tensor that is chosen, and who wrote them") {
  const scratch_folder folder;
  const auto picture = folder / "maps.svg";
  const std::string call = "inspect " + golden + " --only 'model\\..*'";
  const auto run = run_tool(call + " --map --svg " + picture.string());
  CHECK(run.status == 0);
  CHECK(run.out.empty());
  CHECK(run.err.empty());
  const json document = json::parse(run_tool(call + " --json").out);
  std::map<std::string, std::multiset<std::string>> expected;
  for (const auto& [key, tensor] : document.at("tensors").items())
    expected[key + "  " + tensor.at("dtype").get<std::string>()] = titles_of(document, tensor);
  REQUIRE(expected.size() > 3);
  const std::string svg = read_text(picture);
  CHECK(maps_of(svg) == expected);
  CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" "));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(svg.find("prefers-color-scheme:dark") != std::string::npos);

  const auto both = run_tool(call + " --json --force --svg " + picture.string());
  CHECK(json::parse(both.out) == document);
  CHECK(read_text(picture) == svg);
}

TEST_CASE("a picture of maps ends after the tensors allowed and counts the rest") {
  const scratch_folder folder;
  const auto picture = folder / "maps.svg";
  const auto count = json::parse(run_tool("inspect " + golden + " --json").out).at("tensors").size();
  REQUIRE(run_tool("inspect " + golden + " --limit 2 --svg " + picture.string()).status == 0);
  const auto maps = maps_of(read_text(picture));
  CHECK(maps.size() == 3);
  CHECK(maps.contains("and " + std::to_string(count - 2) + " more tensors"));

  REQUIRE(run_tool("inspect " + golden + " --limit 0 --force --svg " + picture.string()).status == 0);
  CHECK(maps_of(read_text(picture)).size() == count);
}

TEST_CASE("no name in a checkpoint is markup in the picture of its maps") {
  const scratch_folder folder;
  const auto picture = folder / "maps.svg", file = folder / "a.safetensors";
  const std::string header = R"({"</text><script>&\u001b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  std::ofstream(file, std::ios::binary) << std::string(1, static_cast<char>(header.size())) << std::string(7, '\0')
                                        << header << 'x';
  REQUIRE(run_tool("inspect " + file.string() + " --svg " + picture.string()).status == 0);
  const std::map<std::string, std::multiset<std::string>> expected{
      {"&lt;/text&gt;&lt;script&gt;&amp;\\x1b  uint8", {"[0:1) on 0"}}};
  CHECK(maps_of(read_text(picture)) == expected);
}

TEST_CASE("the caption of a long key keeps its end, and the picture is as wide as the caption") {
  const scratch_folder folder;
  const auto picture = folder / "maps.svg", file = folder / "a.safetensors";
  const std::string key = std::string(150, 'a') + std::string(150, 'b') + ".weight";
  std::string header = R"({")" + key + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  header.resize(400, ' ');
  std::ofstream(file, std::ios::binary) << '\x90' << '\x01' << std::string(6, '\0') << header << 'x';
  REQUIRE(run_tool("inspect " + file.string() + " --svg " + picture.string()).status == 0);
  const std::string svg = read_text(picture);
  const std::string caption = drawn_map::between(svg, "class=\"caption\"", "</text>");
  CHECK(caption.ends_with("bbb.weight  uint8"));
  CHECK(caption.find(">aaa") != std::string::npos);
  CHECK(caption.find(key) == std::string::npos);
  CHECK(std::stoi(drawn_map::between(svg, " width=\"", "\"")) > 200 * 7);
}

TEST_CASE("no picture is written into the checkpoint that it shows, nor where nothing can be") {
  const scratch_folder folder;
  std::filesystem::copy(golden, folder / "checkpoint", std::filesystem::copy_options::recursive);
  const std::string path = (folder / "checkpoint").string();
  const auto inside = run_tool("inspect " + path + " --svg " + path + "/__0_0.distcp");
  CHECK(inside.status == 2);
  CHECK(inside.err == path + "/__0_0.distcp: --svg would write into the checkpoint [invalid_argument]\n");
  CHECK(run_tool("verify " + path).status == 0);
  CHECK(run_tool("inspect " + path + " --svg " + (folder / "no/such/maps.svg").string()).status == 3);
}
