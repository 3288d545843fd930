// SPDX-License-Identifier: Apache-2.0
// Runs the built command line and captures its output. Tests only.
#pragma once
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <scratch_folder.hpp>
#include <sstream>
#include <string>

struct tool_output {
  int status = -1;
  std::string out, err;
  long error_lines() const { return std::count(err.begin(), err.end(), '\n'); }
};

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// `arguments` is the rest of a shell command line, with its own quotes. `before` runs first in the same shell; for
/// example, "ulimit -s 256; ".
inline tool_output run_tool(const std::string& arguments, const std::string& before = "") {
  const scratch_folder folder;
  const auto out = folder / "out", err = folder / "err";
  const int status = std::system((before + std::string(SHARDMESH_TOOL " ") + arguments + " >" + out.string() + " 2>" +
                                  err.string() + " </dev/null")
                                     .c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, read_text(out), read_text(err)};
}
