// SPDX-License-Identifier: Apache-2.0
// An LD_PRELOAD library that logs every successful call that changes files below $FILE_LOG_UNDER, of all processes in
// one order; crash_model.py replays every prefix of the log. A lock is held from before the call until it is logged.
// $FILE_LOG has one line per call: tab-separated fields, names relative to that folder, bytes in hexadecimal:
//   create NAME · mkdir NAME · write NAME OFFSET BYTES · truncate NAME SIZE · fsync NAME · rename FROM TO ·
//   exchange ONE OTHER · link FROM TO · unlink NAME · rmdir NAME
// NAME is empty if the file lost its name before the call took the lock. Tests only.
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <string>

#include "preload.hpp"

namespace {

struct settings {
  preload::folder under;
  int log = -1;
};

settings read_settings() {
  settings s;
  const char* const log = getenv("FILE_LOG");
  if (!log) return s;
  s.log = static_cast<int>(syscall(SYS_openat, AT_FDCWD, log, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (s.log >= 0) s.under.set(getenv("FILE_LOG_UNDER"));
  return s;
}

const settings& chosen() {
  static const settings s = read_settings();
  return s;
}

std::string path_of(int fd) {
  char path[PATH_MAX];
  return preload::name_of(fd, path) ? std::string(path) : std::string();
}

// The path relative to the watched folder ("." itself); empty if it is outside, or if the file no longer has a name.
std::string watched(std::string path) {
  const preload::folder& under = chosen().under;
  if (!under.holds(path.c_str()) || path.find(" (deleted)") != std::string::npos) return {};
  return path == under.path() ? "." : path.substr(strlen(under.path()) + 1);
}
std::string watched(int dir, const char* path) {
  if (!chosen().under.is_set() || !path) return {};
  if (path[0] == '/') return watched(path);
  if (dir != AT_FDCWD) return watched(path_of(dir) + "/" + path);
  char here[PATH_MAX];
  return getcwd(here, sizeof here) ? watched(std::string(here) + "/" + path) : std::string();
}

std::string hex(const void* bytes, size_t size) {
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    const unsigned char byte = static_cast<const unsigned char*>(bytes)[i];
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

// The lock that makes calls of all threads and processes take turns.
class turn {
 public:
  turn() : thread_(mutex()) { lock(F_WRLCK); }
  ~turn() { lock(F_UNLCK); }
  void log(std::string line) {
    const int error = errno;
    line += "\n";
    syscall(SYS_write, chosen().log, line.data(), line.size());
    errno = error;
  }

 private:
  static std::mutex& mutex() {
    static auto* const one = new std::mutex;
    return *one;
  }
  static void lock(short how) {
    const int error = errno;
    struct flock whole{};
    whole.l_type = how;
    while (fcntl(chosen().log, F_SETLKW, &whole) != 0 && errno == EINTR) {
    }
    errno = error;
  }
  std::scoped_lock<std::mutex> thread_;
};

// Makes a call about `name` (empty: not watched), and logs it if it returns 0.
template <class Call>
int logged(const std::string& name, const std::string& line, Call&& call) {
  if (name.empty()) return call();
  turn mine;
  const int done = call();
  if (done == 0) mine.log(line);
  return done;
}
template <class Call>
int logged_at(const char* what, const std::string& name, Call&& call) {
  return logged(name, std::string(what) + "\t" + name, call);
}
template <class Call>
int logged_pair(const char* what, const std::string& from, const std::string& to, Call&& call) {
  return logged(to, std::string(what) + "\t" + from + "\t" + to, call);
}

template <class Call>
ssize_t logged_write(int fd, const void* bytes, off_t at, Call&& call) {
  if (watched(path_of(fd)).empty()) return call();
  turn mine;
  const std::string name = watched(path_of(fd));
  const ssize_t done = call();
  if (done > 0) mine.log("write\t" + name + "\t" + std::to_string(at) + "\t" + hex(bytes, static_cast<size_t>(done)));
  return done;
}

template <class Call>
int logged_fd(const char* what, int fd, const std::string& more, Call&& call) {
  if (watched(path_of(fd)).empty()) return call();
  turn mine;
  const std::string name = watched(path_of(fd));
  const int done = call();
  if (done == 0 && !name.empty()) mine.log(std::string(what) + "\t" + name + more);
  return done;
}

template <class Call>
int logged_open(const std::string& name, int dir, const char* path, int flags, Call&& call) {
  if (!(flags & (O_CREAT | O_TRUNC)) || name.empty()) return call();
  turn mine;
  struct stat before{};
  const bool was_there = fstatat(dir, path, &before, 0) == 0;
  const int fd = call();
  if (fd >= 0 && !was_there) mine.log("create\t" + name);
  if (fd >= 0 && was_there && (flags & O_TRUNC)) mine.log("truncate\t" + name + "\t0");
  return fd;
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* bytes, size_t size) {
  const off_t at = watched(path_of(fd)).empty() ? 0 : lseek(fd, 0, SEEK_CUR);
  return logged_write(fd, bytes, at, [&] { return REAL(write)(fd, bytes, size); });
}
ssize_t pwrite(int fd, const void* bytes, size_t size, off_t at) {
  return logged_write(fd, bytes, at, [&] { return REAL(pwrite)(fd, bytes, size, at); });
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t at) {
  return logged_write(fd, bytes, at, [&] { return REAL(pwrite64)(fd, bytes, size, at); });
}
int fsync(int fd) {
  return logged_fd("fsync", fd, "", [&] { return REAL(fsync)(fd); });
}
int fdatasync(int fd) {
  return logged_fd("fsync", fd, "", [&] { return REAL(fdatasync)(fd); });
}
int ftruncate(int fd, off_t size) noexcept {
  return logged_fd("truncate", fd, "\t" + std::to_string(size), [&] { return REAL(ftruncate)(fd, size); });
}
int ftruncate64(int fd, off64_t size) noexcept {
  return logged_fd("truncate", fd, "\t" + std::to_string(size), [&] { return REAL(ftruncate64)(fd, size); });
}
int rename(const char* from, const char* to) noexcept {
  return logged_pair("rename", watched(AT_FDCWD, from), watched(AT_FDCWD, to), [&] { return REAL(rename)(from, to); });
}
long syscall(long number, ...) noexcept {
  va_list more;
  va_start(more, number);
  long a[6];
  for (long& argument : a) argument = va_arg(more, long);
  va_end(more);
  const auto call = [&] {
    return (*preload::real<long(long, ...)>("syscall"))(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  };
  if (number != SYS_renameat2) return call();
  const std::string from = watched(static_cast<int>(a[0]), reinterpret_cast<const char*>(a[1]));
  const std::string to = watched(static_cast<int>(a[2]), reinterpret_cast<const char*>(a[3]));
  const char* const what = (a[4] & RENAME_EXCHANGE) != 0 ? "exchange" : "rename";
  return logged_pair(what, from, to, [&] { return static_cast<int>(call()); });
}
int link(const char* from, const char* to) noexcept {
  return logged_pair("link", watched(AT_FDCWD, from), watched(AT_FDCWD, to), [&] { return REAL(link)(from, to); });
}
int mkdir(const char* path, mode_t rights) noexcept {
  return logged_at("mkdir", watched(AT_FDCWD, path), [&] { return REAL(mkdir)(path, rights); });
}
int unlink(const char* path) noexcept {
  return logged_at("unlink", watched(AT_FDCWD, path), [&] { return REAL(unlink)(path); });
}
int unlinkat(int dir, const char* path, int flags) noexcept {
  return logged_at((flags & AT_REMOVEDIR) != 0 ? "rmdir" : "unlink", watched(dir, path),
                   [&] { return REAL(unlinkat)(dir, path, flags); });
}
int remove(const char* path) noexcept {
  struct stat about{};
  const bool is_folder = lstat(path, &about) == 0 && S_ISDIR(about.st_mode);
  return logged_at(is_folder ? "rmdir" : "unlink", watched(AT_FDCWD, path), [&] { return REAL(remove)(path); });
}
int rmdir(const char* path) noexcept {
  return logged_at("rmdir", watched(AT_FDCWD, path), [&] { return REAL(rmdir)(path); });
}

#define OPENS(name, dir_expression, ...)                                                                \
  va_list more;                                                                                         \
  va_start(more, flags);                                                                                \
  const mode_t rights = (flags & (O_CREAT | O_TMPFILE)) ? static_cast<mode_t>(va_arg(more, int)) : 0;   \
  va_end(more);                                                                                         \
  const std::string at = (flags & (O_CREAT | O_TRUNC)) ? watched(dir_expression, path) : std::string(); \
  return logged_open(at, dir_expression, path, flags, [&] { return REAL(name)(__VA_ARGS__ path, flags, rights); })

int open(const char* path, int flags, ...) {
  OPENS(open, AT_FDCWD, );
}
int open64(const char* path, int flags, ...) {
  OPENS(open64, AT_FDCWD, );
}
int openat(int dir, const char* path, int flags, ...) {
  OPENS(openat, dir, dir, );
}
int openat64(int dir, const char* path, int flags, ...) {
  OPENS(openat64, dir, dir, );
}

}  // extern "C"
