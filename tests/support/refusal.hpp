// SPDX-License-Identifier: Apache-2.0
// Refusals of the command line. Include before imports.
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <run_tool.hpp>
#include <string>

/// Runs the tool, which must refuse: with this status, nothing on stdout, and one line on stderr. Returns that line.
inline std::string refusal(const std::string& arguments, int status) {
  INFO(arguments);
  const auto run = run_tool(arguments);
  CHECK(run.status == status);
  CHECK(run.out.empty());
  CHECK(run.error_lines() == 1);
  return run.err;
}

/// Also a CHECK, so that a failure shows the line.
inline bool says(const std::string& line, const std::string& part) {
  INFO(line);
  CHECK(line.find(part) != std::string::npos);
  return line.find(part) != std::string::npos;
}
