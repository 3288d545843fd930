// SPDX-License-Identifier: Apache-2.0
// Shared by the LD_PRELOAD libraries: the functions that they wrap, and the files below the watched folder. Nothing
// here allocates, because one library makes malloc fail. Tests only.
#pragma once
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace preload {

/// The function that the program would have called without the library.
template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#define REAL(name) (*preload::real<decltype(name)>(#name))

/// The path that a descriptor is open on, from the kernel; false if it has none.
inline bool name_of(int fd, char (&path)[PATH_MAX]) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = fd < 0 ? -1 : readlink(link, path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  return true;
}

/// A watched folder; none until it is set.
class folder {
 public:
  /// Follows links. Returns false, and sets no folder, for null and for a path that does not exist.
  bool set(const char* path) {
    length_ = path && realpath(path, path_) ? strlen(path_) : 0;
    return is_set();
  }
  bool is_set() const { return length_ > 0; }
  const char* path() const { return path_; }
  /// Whether this absolute path is the folder or below it.
  bool holds(const char* path) const {
    return is_set() && path && !strncmp(path, path_, length_) && (path[length_] == '/' || path[length_] == '\0');
  }
  bool holds(int fd) const {
    char path[PATH_MAX];
    return is_set() && name_of(fd, path) && holds(path);
  }

 private:
  char path_[PATH_MAX] = "";
  size_t length_ = 0;
};

}  // namespace preload
