// SPDX-License-Identifier: Apache-2.0
// What the command line says when it refuses. Include before imports.
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <run_tool.hpp>
#include <string>

/// Runs the tool, which must refuse: this status, nothing on stdout, one line on stderr, which is returned.
inline std::string refusal(const std::string& arguments, int status) {
  INFO(arguments);
  const auto run = run_tool(arguments);
  CHECK(run.status == status);
  CHECK(run.out.empty());
  CHECK(run.error_lines() == 1);
  return run.err;
}

/// Checks, too, so that a failure shows the line.
inline bool says(const std::string& line, const std::string& part) {
  INFO(line);
  CHECK(line.find(part) != std::string::npos);
  return line.find(part) != std::string::npos;
}
