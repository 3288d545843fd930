// SPDX-License-Identifier: Apache-2.0
// Tests what inspect prints for a whole checkpoint: its counts by role, and the texts of safetensors files.
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <run_tool.hpp>
#include <safetensors_files.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace {

struct entry {
  std::string name, dtype;
  std::size_t count, bytes;
};

std::string tensor_file(const std::vector<entry>& entries, const nlohmann::ordered_json& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t end = 0;
  for (const entry& e : entries) {
    header[e.name] = {{"dtype", e.dtype}, {"shape", {e.count}}, {"data_offsets", {end, end + e.bytes}}};
    end += e.bytes;
  }
  return safetensors_files::bytes(header.dump(), end);
}

std::string line_with(const std::string& text, const std::string& word) {
  const std::size_t at = text.find(word);
  if (at == std::string::npos) return {};
  const std::size_t begin = text.rfind('\n', at) + 1;
  return text.substr(begin, text.find('\n', at) - begin);
}

}  // namespace

TEST_CASE("parameters are the floating numbers of the model; optimizer state and the rest are counted apart") {
  const safetensors_files::temporary_folder folder;
  const auto counts = [&](const std::vector<entry>& entries) {
    const auto file = folder.write("a.safetensors", tensor_file(entries, {}));
    const tool_output said = run_tool("inspect " + file.string());
    CHECK(said.status == 0);
    return line_with(said.out, "parameters");
  };
  CHECK(counts({{"w", "F32", 5, 20}, {"h", "BF16", 3, 6}}) == "  parameters  8");
  CHECK(counts({{"state.model.w", "F32", 5, 20},
                {"state.model.bn.num_batches_tracked", "I64", 1, 8},
                {"state.optimizers.Adam.state.w.exp_avg", "F32", 5, 20},
                {"state.schedulers.S.base_lrs", "F32", 2, 8},
                {"rng.0.cpu", "U8", 9, 9}}) == "  parameters  5 (and 5 numbers of optimizer state, 12 other numbers)");
  CHECK(counts({{"model.w", "F32", 5, 20}, {"rng_state", "F64", 2, 16}}) == "  parameters  5 (and 2 other numbers)");
}

TEST_CASE("inspect --limit N lists the first N entries and counts the rest, and 0 lists all") {
  const safetensors_files::temporary_folder folder;
  const auto file =
      folder.write("a.safetensors", tensor_file({{"a", "F32", 1, 4}, {"b", "F32", 1, 4}, {"c", "F32", 1, 4}}, {}));
  const std::string call = "inspect " + file.string();
  const std::string all = run_tool(call).out;
  const std::size_t second = all.find("\nb ");
  REQUIRE(second != std::string::npos);
  CHECK(run_tool(call + " --limit 0").out == all);
  CHECK(run_tool(call + " --limit 1").out == all.substr(0, second + 1) + "... and 2 more\n");
  CHECK(run_tool(call + " --limit 9").out == all);
}

TEST_CASE("inspect shows the texts of safetensors files, and which file says what where they differ") {
  const safetensors_files::temporary_folder folder;
  const std::string long_value(500, 'v');
  folder.write("a.safetensors",
               tensor_file({{"x", "F32", 1, 4}}, {{"part", "one"}, {"same", "1"}, {"long", long_value}}));
  folder.write("b.safetensors",
               tensor_file({{"y", "F32", 1, 4}}, {{"part", "two"}, {"same", "1"}, {"esc", "\x1b[2J"}}));
  const tool_output said = run_tool("inspect " + folder.path().string());
  CHECK(said.status == 0);
  CHECK(line_with(said.out, "part:") == "  metadata    part: one (and 1 other value)");
  CHECK(line_with(said.out, "same:") == "  metadata    same: 1");
  CHECK(line_with(said.out, "esc:") == "  metadata    esc: \\x1b[2J");
  CHECK(line_with(said.out, "long:") == "  metadata    long: " + std::string(100, 'v') + "... (500 bytes)");
  const auto document = nlohmann::json::parse(run_tool("inspect --json " + folder.path().string()).out);
  CHECK(document.at("metadata") == nlohmann::json{{"part", {{"a.safetensors", "one"}, {"b.safetensors", "two"}}},
                                                  {"same", "1"},
                                                  {"long", long_value},
                                                  {"esc", "\x1b[2J"}});
  const auto single =
      nlohmann::json::parse(run_tool("inspect --json " + (folder.path() / "a.safetensors").string()).out);
  CHECK(single.at("metadata") == nlohmann::json{{"part", "one"}, {"same", "1"}, {"long", long_value}});
}

TEST_CASE("inspect --tree draws entries by their paths, and a key that begins another as a child of its own") {
  const safetensors_files::temporary_folder folder;
  folder.write("a.safetensors", tensor_file({{"model.b.weight", "F32", 2, 8},
                                             {"model.a", "F32", 1, 4},
                                             {"model.a.scale", "F64", 1, 8},
                                             {"step", "I64", 1, 8}},
                                            {}));
  const std::string call = "inspect --tree " + (folder.path() / "a.safetensors").string();
  const tool_output said = run_tool(call);
  CHECK(said.status == 0);
  const std::string tree =
      "{2}\n"
      "|- model {2}\n"
      "|  |- a {2}\n"
      "|  |  |- [\"(itself)\"]  float32 [1]  4 bytes\n"
      "|  |  `- scale  float64 [1]  8 bytes\n"
      "|  `- b {1}\n"
      "|     `- weight  float32 [2]  8 bytes\n"
      "`- step  int64 [1]  8 bytes\n";
  CHECK(said.out.ends_with(tree));
  CHECK(run_tool(call + " --limit 2").out.ends_with("{2}\n|- model {2}\n|  |- a {2}\nand 5 more nodes\n"));
  CHECK(run_tool(call + " --limit 0").out == said.out);
  // A picture has the same rows, and nothing else is printed.
  const std::filesystem::path picture = folder.path() / "tree.svg";
  const tool_output drawn = run_tool(call + " --limit 2 --svg " + picture.string());
  CHECK(drawn.status == 0);
  CHECK(drawn.out.empty());
  std::ifstream file(picture);
  const std::string svg{std::istreambuf_iterator<char>(file), {}};
  CHECK(svg.starts_with("<svg xmlns"));
  for (const char* const part : {">model</tspan>", ">a</tspan>", "and 5 more nodes</text>"})
    CHECK(svg.find(part) != std::string::npos);
  CHECK(svg.find("scale") == std::string::npos);
}
