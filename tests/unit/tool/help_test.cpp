// SPDX-License-Identifier: Apache-2.0
// Tests --help: its width, its words, and its examples.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <run_tool.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

const std::vector<std::string> commands{"inspect", "verify",       "diff", "convert",    "reshard",
                                        "layout",  "plan",         "map",  "run",        "delta",
                                        "clean",   "check-shards", "man",  "completion", "devices"};

// The help of a command, or of the tool for "", in a shell with these COLUMNS.
std::string help(const std::string& command, const std::string& columns = "80") {
  const auto run = run_tool(command + " --help", "COLUMNS=" + columns + " ");
  INFO(command);
  CHECK(run.status == 0);
  CHECK(run.err.empty());
  return run.out;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

std::size_t longest(const std::string& text) {
  std::size_t most = 0;
  for (const std::string& line : lines(text)) most = std::max(most, line.size());
  return most;
}

std::vector<std::string> examples(const std::string& text) {
  constexpr std::string_view heading = "\nExamples:\n";
  const std::size_t at = text.find(heading);
  return at == std::string::npos ? std::vector<std::string>() : lines(text.substr(at + heading.size()));
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the help of the tool lists every command, completion and man included") {
  const std::string text = help("");
  for (const std::string& command : commands) {
    INFO(command);
    CHECK(has(text, "\n  " + command + " "));
  }
}

TEST_CASE("help fits into 80 columns, and prints no types or checks of the parser") {
  std::vector<std::string> all = commands;
  all.emplace_back("");
  for (const std::string& command : all) {
    INFO(command);
    const std::string text = help(command);
    for (const std::string& line : lines(text)) {
      INFO(line);
      CHECK(line.size() <= 80);
      CHECK((line.empty() || line.back() != ' '));
    }
    for (const std::string_view noise : {"INT", "TEXT", "FLOAT", "in [", "REQUIRED", "Positionals"}) {
      INFO(noise);
      CHECK_FALSE(has(text, noise));
    }
  }
}

TEST_CASE("help is as wide as COLUMNS, from 40 to 120, and 80 if that is no number") {
  CHECK(longest(help("convert", "120")) > 100);
  CHECK(longest(help("convert", "500")) <= 120);
  for (const std::string columns : {"", "0", "wide", "-3", "80x"}) {
    INFO(columns);
    CHECK(help("convert", "'" + columns + "'") == help("convert", "80"));
  }
  const std::string text = help("convert", "1");
  for (const std::string& line : lines(text.substr(0, text.find("\nExamples:\n")))) {
    INFO(line);
    CHECK(line.size() <= 40);
  }
}

TEST_CASE("help states values, choices, and defaults in words") {
  CHECK(has(help("", "120"),
            "\n  --threads N               Number of worker threads, at most 4096 (default: all cores)\n"));
  CHECK(has(help("layout", "120"), "Usage: shardmesh layout --shape SHAPE --mesh MESH --place PLACEMENTS [OPTIONS]\n"));
  CHECK(has(help("convert"), "Usage: shardmesh convert [OPTIONS] SRC DST\n"));
  CHECK(has(help("run"), "Usage: shardmesh run [OPTIONS] ACTION DIR [STEP]\n"));
  CHECK(has(help("map"), "Usage: shardmesh map [OPTIONS] ACTION [ARGUMENTS]\n"));
  const std::string convert = help("convert", "120");
  CHECK(has(convert, "(one of: dcp,"));
  CHECK(has(convert, "(default: 1GiB)"));
  CHECK(has(convert, "\n  --only RE                 Take only the keys that match RE (repeatable)\n"));
  CHECK(has(convert,
            "Options of every command: --threads N, --limit-factor N, --within SECONDS (see 'shardmesh --help')."));
}

TEST_CASE("every command has examples, and no example is wrong usage") {
  for (const std::string& command : commands) {
    INFO(command);
    const std::vector<std::string> found = examples(help(command));
    CHECK(found.size() >= 1);
    CHECK(found.size() <= 3);
    for (const std::string& line : found) {
      INFO(line);
      CHECK(has(line, "shardmesh " + command));
      if (line.find_first_of("|<") != std::string::npos) continue;  // for a person's shell
      const scratch_folder folder;
      const std::string arguments = line.substr(line.find("shardmesh ") + 10);
      CHECK(run_tool(arguments, "cd " + (folder / "").string() + " && ").status != 2);
    }
  }
}

TEST_CASE("values that are missing, given twice, or misspelled are named in plain words") {
  const auto line = [](const std::string& arguments) {
    const auto run = run_tool(arguments);
    CHECK(run.status == 2);
    return run.err;
  };
  CHECK(line("verify x --threads") ==
        "shardmesh verify: --threads needs a value (see 'shardmesh verify --help') [invalid_argument]\n");
  CHECK(has(line("verify x --threads 1 --threads 2"), "--threads is given more than once"));
  CHECK(has(line("verify x --threads 5000"), "--threads: '5000' is not a whole number from 0 to 4096"));
  CHECK(has(line("convert a b --to safetensor"),
            "--to: 'safetensor' is not one of dcp, safetensors, hf, pt, torch-checkpointing, gguf, npz; did you mean "
            "safetensors?"));
  CHECK(has(line("inspect x --key a --only b"), " cannot be used with --"));
  CHECK(has(line("completion ksh"), "SHELL: 'ksh' is not one of bash, zsh, fish"));
}
