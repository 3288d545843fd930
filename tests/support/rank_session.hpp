// SPDX-License-Identifier: Apache-2.0
// A Catch2 session on each of several processes: every rank runs every test case, in file order. Rank 0 reports; other
// ranks report only failures. It uses no shardmesh type.
#pragma once
#include <unistd.h>

#include <catch2/catch_session.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

/// Returns the number of failed cases, or nonzero for an invalid command line.
inline int run_rank_session(int argc, const char* const* argv, std::int32_t rank) {
  Catch::Session session;
  if (const int wrong = session.applyCommandLine(argc, argv); wrong != 0) return wrong;
  session.configData().runOrder = Catch::TestRunOrder::Declared;
  session.configData().rngSeed = 1;
  session.configData().defaultColourMode = Catch::ColourMode::None;
  std::filesystem::path report;
  if (rank != 0) {
    report = std::filesystem::temp_directory_path() /
             ("shardmesh_rank_" + std::to_string(getpid()) + "_" + std::to_string(rank) + ".txt");
    session.configData().defaultOutputFilename = report.string();
  }
  const int failed = session.run();
  if (!report.empty()) {
    if (failed != 0) std::cerr << "rank " << rank << ":\n" << std::ifstream(report).rdbuf() << std::flush;
    std::filesystem::remove(report);
  }
  return failed;
}
