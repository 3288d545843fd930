// SPDX-License-Identifier: Apache-2.0
// Output of the command line.
#include <fcntl.h>
#include <unistd.h>

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
  // A FIFO that nobody reads is an error, not a wait; one that somebody reads is written to as a file is.
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
  if (fd >= 0) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  std::FILE* file = fd < 0 ? nullptr : ::fdopen(fd, "wb");
  bool good = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr) good = std::fclose(file) == 0 && good;
  if (!good) stop("cannot write '" + path + "': " + std::strerror(errno), not_completed);
  return good;
}

}  // namespace tool
