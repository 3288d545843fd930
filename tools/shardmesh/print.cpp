// SPDX-License-Identifier: Apache-2.0
// Output of the command line.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "command.hpp"

namespace tool {

void print_problem(const std::string& line) {
  std::fprintf(stderr, "%s\n", line.c_str());
}

int stop(const std::string& line, exit_status status) {
  print_problem("shardmesh: " + line);
  return status;
}

bool print(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
}

bool write_text_file(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  bool good = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr) good = std::fclose(file) == 0 && good;
  if (!good) stop("cannot write '" + path + "': " + std::strerror(errno), not_completed);
  return good;
}

}  // namespace tool
