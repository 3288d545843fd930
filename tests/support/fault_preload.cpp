// SPDX-License-Identifier: Apache-2.0
// An LD_PRELOAD library that makes the file system fail at a chosen call, to prove that commands never damage existing
// data. It counts the calls that change files below $FAULT_UNDER. At call number $FAULT_AT (from 1):
//   FAULT_MODE=fail   fails it with errno $FAULT_ERRNO (default EIO); with FAULT_STICKY=1 every later call that needs
//                     space fails as well, as on a full disk
//   FAULT_MODE=short  lets a write transfer half of its bytes
//   FAULT_MODE=kill   kills the process before the call is made
//   FAULT_MODE=interrupt  lets a signal interrupt it (EINTR), where that is possible: opening, writing, fsync
//   FAULT_MODE=lost   lets a write succeed whose bytes never reach the disk: fsync or close of the same descriptor
//                     reports the loss, once; other descriptors do not
// With FAULT_KIND=write, fsync or close only such calls count; a close counts only if its descriptor was written
// through. FAULT_MODE=plain needs no number: it acts as a file system with plain renames only: no flags of renameat2,
// and no hard links unless FAULT_LINKS=1. At exit it writes the number of calls to $FAULT_COUNT_FILE. Tests only.
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "preload.hpp"

namespace {

enum class mode { none, fail, cut, kill, interrupt, lost, plain };
enum class outcome { go_on, fail, cut };
enum class kind { other, write, fsync, close };
enum class needs { nothing, space, time, space_and_time };  // time: a signal can interrupt it

struct settings {
  preload::folder under;
  long at = 0;
  mode what = mode::none;
  int error = EIO;
  bool sticky = false, links = false, counts_all = true;
  kind counted = kind::other;
};

long number_from(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text ? atol(text) : otherwise;
}

settings read_settings() {
  settings s;
  if (!s.under.set(getenv("FAULT_UNDER"))) return s;
  s.at = number_from("FAULT_AT", 0);
  s.error = static_cast<int>(number_from("FAULT_ERRNO", EIO));
  s.sticky = number_from("FAULT_STICKY", 0) != 0;
  s.links = number_from("FAULT_LINKS", 0) != 0;
  const char* what = getenv("FAULT_MODE");
  if (what && !strcmp(what, "plain")) s.what = mode::plain;
  if (what && !strcmp(what, "fail")) s.what = mode::fail;
  if (what && !strcmp(what, "short")) s.what = mode::cut;
  if (what && !strcmp(what, "kill")) s.what = mode::kill;
  if (what && !strcmp(what, "interrupt")) s.what = mode::interrupt;
  if (what && !strcmp(what, "lost")) s.what = mode::lost;
  const char* only = getenv("FAULT_KIND");
  s.counts_all = !only;
  if (only && !strcmp(only, "write")) s.counted = kind::write;
  if (only && !strcmp(only, "fsync")) s.counted = kind::fsync;
  if (only && !strcmp(only, "close")) s.counted = kind::close;
  return s;
}

const settings& chosen() {
  static const settings s = read_settings();
  return s;
}

std::atomic<long> calls{0};

// Per descriptor: whether it was written through, and the error that its next fsync or close must report.
constexpr int most_descriptors = 4096;
std::atomic<bool> written[most_descriptors];
std::atomic<int> owed[most_descriptors];

bool is_known(int fd) {
  return fd >= 0 && fd < most_descriptors;
}
int take_owed(int fd) {
  return is_known(fd) ? owed[fd].exchange(0) : 0;
}

bool lies_under(const char* path) {
  return chosen().under.holds(path);
}

bool watched(int fd) {
  return chosen().under.holds(fd);
}

bool watched(int dir, const char* path) {
  if (!chosen().under.is_set() || !path) return false;
  if (path[0] == '/') return lies_under(path);
  if (dir != AT_FDCWD) return watched(dir);
  char here[PATH_MAX];
  return getcwd(here, sizeof here) && (lies_under(here) || [&] {
           char joined[2 * PATH_MAX];
           snprintf(joined, sizeof joined, "%s/%s", here, path);
           char whole[PATH_MAX];  // the entry itself may not exist: its folder decides
           if (char* slash = strrchr(joined, '/')) *slash = '\0';
           return realpath(joined, whole) && lies_under(whole);
         }());
}

outcome next_call(needs what, kind which = kind::other, int fd = -1) {
  const settings& s = chosen();
  if (which == kind::write && is_known(fd)) written[fd] = true;
  if (!s.counts_all && which != s.counted) return outcome::go_on;
  const long number = ++calls;
  if (s.at == 0) return outcome::go_on;
  if (number == s.at) {
    if (s.what == mode::kill) {
      raise(SIGKILL);
      for (;;) pause();
    }
    if (s.what == mode::cut) return outcome::cut;
    if (s.what == mode::lost && is_known(fd)) owed[fd] = s.error;
    if (s.what == mode::fail) return errno = s.error, outcome::fail;
    if (s.what == mode::interrupt && (what == needs::time || what == needs::space_and_time))
      return errno = EINTR, outcome::fail;
  }
  if (number > s.at && s.what == mode::fail && s.sticky && (what == needs::space || what == needs::space_and_time))
    return errno = s.error, outcome::fail;
  return outcome::go_on;
}

struct report {
  ~report() {
    const char* file = getenv("FAULT_COUNT_FILE");
    if (!file) return;
    char text[32];
    const int length = snprintf(text, sizeof text, "%ld\n", calls.load());
    const long fd = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0) return;
    syscall(SYS_write, fd, text, length);
    syscall(SYS_close, fd);
  }
} at_exit;

// Cuts a vectored write to the first half of its first piece.
template <class Write>
ssize_t vectored(int fd, const iovec* pieces, Write&& write) {
  if (!watched(fd)) return write(pieces, -1);
  switch (next_call(needs::space_and_time, kind::write, fd)) {
    case outcome::fail:
      return -1;
    case outcome::cut: {
      const iovec half{pieces[0].iov_base, (pieces[0].iov_len + 1) / 2};
      return write(&half, 1);
    }
    default:
      return write(pieces, -1);
  }
}

template <class Call>
int plain(bool relevant, needs what, Call&& call, kind which = kind::other) {
  if (relevant && next_call(what, which) == outcome::fail) return -1;
  return call();
}

template <class Call>
int synced(int fd, Call&& call) {
  if (const int error = take_owed(fd)) return errno = error, -1;
  return plain(watched(fd), needs::time, call, kind::fsync);
}

template <class Write>
ssize_t counted(int fd, size_t size, Write&& write) {
  if (!watched(fd)) return write(size);
  switch (next_call(needs::space_and_time, kind::write, fd)) {
    case outcome::fail:
      return -1;
    case outcome::cut:
      return write((size + 1) / 2);
    default:
      return write(size);
  }
}

// Features that a plain file system lacks.
bool lacks_flags(unsigned flags) {
  return flags != 0 && chosen().what == mode::plain;
}
bool lacks_links() {
  return chosen().what == mode::plain && !chosen().links;
}

constexpr int creating = O_CREAT | O_TRUNC;

}  // namespace

extern "C" {

ssize_t write(int fd, const void* data, size_t size) {
  return counted(fd, size, [&](size_t n) { return REAL(write)(fd, data, n); });
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t at) {
  return counted(fd, size, [&](size_t n) { return REAL(pwrite)(fd, data, n, at); });
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t at) {
  return counted(fd, size, [&](size_t n) { return REAL(pwrite64)(fd, data, n, at); });
}
ssize_t writev(int fd, const iovec* pieces, int count) {
  return vectored(fd, pieces, [&](const iovec* p, int n) { return REAL(writev)(fd, p, n < 0 ? count : n); });
}
ssize_t pwritev(int fd, const iovec* pieces, int count, off_t at) {
  return vectored(fd, pieces, [&](const iovec* p, int n) { return REAL(pwritev)(fd, p, n < 0 ? count : n, at); });
}
ssize_t pwritev64(int fd, const iovec* pieces, int count, off64_t at) {
  return vectored(fd, pieces, [&](const iovec* p, int n) { return REAL(pwritev64)(fd, p, n < 0 ? count : n, at); });
}
ssize_t copy_file_range(int in, off64_t* in_at, int out, off64_t* out_at, size_t size, unsigned flags) {
  return counted(out, size, [&](size_t n) { return REAL(copy_file_range)(in, in_at, out, out_at, n, flags); });
}
ssize_t sendfile(int out, int in, off_t* at, size_t size) {
  using function = ssize_t(int, int, off_t*, size_t);
  return counted(out, size, [&](size_t n) { return (*preload::real<function>("sendfile"))(out, in, at, n); });
}

int fsync(int fd) {
  return synced(fd, [&] { return REAL(fsync)(fd); });
}
int fdatasync(int fd) {
  return synced(fd, [&] { return REAL(fdatasync)(fd); });
}
int ftruncate(int fd, off_t size) noexcept {
  return plain(watched(fd), needs::nothing, [&] { return REAL(ftruncate)(fd, size); });
}
int ftruncate64(int fd, off64_t size) noexcept {
  return plain(watched(fd), needs::nothing, [&] { return REAL(ftruncate64)(fd, size); });
}
int fallocate(int fd, int how, off_t at, off_t size) {
  return plain(watched(fd), needs::space, [&] { return REAL(fallocate)(fd, how, at, size); });
}
int posix_fallocate(int fd, off_t at, off_t size) {
  if (watched(fd) && next_call(needs::space) == outcome::fail) return errno;
  return REAL(posix_fallocate)(fd, at, size);
}
int close(int fd) {
  const bool is_written = is_known(fd) && written[fd].exchange(false), relevant = watched(fd);
  const int lost = take_owed(fd);
  const kind which = is_written ? kind::close : kind::other;
  if (lost != 0 || (relevant && next_call(needs::nothing, which) == outcome::fail)) {
    const int error = lost != 0 ? lost : errno;
    REAL(close)(fd);
    errno = error;
    return -1;
  }
  return REAL(close)(fd);
}

int rename(const char* from, const char* to) noexcept {
  return plain(watched(AT_FDCWD, to), needs::nothing, [&] { return REAL(rename)(from, to); });
}
int renameat(int from_dir, const char* from, int to_dir, const char* to) noexcept {
  return plain(watched(to_dir, to), needs::nothing, [&] { return REAL(renameat)(from_dir, from, to_dir, to); });
}
int renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) noexcept {
  if (lacks_flags(flags) && watched(to_dir, to)) return errno = EINVAL, -1;
  return plain(watched(to_dir, to), needs::nothing, [&] { return REAL(renameat2)(from_dir, from, to_dir, to, flags); });
}
// Programs call the kernel by number to exchange two names: older C libraries have no wrapper.
long syscall(long number, ...) noexcept {
  va_list more;
  va_start(more, number);
  long a[6];
  for (long& argument : a) argument = va_arg(more, long);
  va_end(more);
  const bool relevant = number == SYS_renameat2 && watched(static_cast<int>(a[2]), reinterpret_cast<const char*>(a[3]));
  if (relevant && lacks_flags(static_cast<unsigned>(a[4]))) return errno = EINVAL, -1;
  if (relevant && next_call(needs::nothing) == outcome::fail) return -1;
  return (*preload::real<long(long, ...)>("syscall"))(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
int link(const char* from, const char* to) noexcept {
  if (lacks_links() && watched(AT_FDCWD, to)) return errno = EPERM, -1;
  return plain(watched(AT_FDCWD, to), needs::nothing, [&] { return REAL(link)(from, to); });
}
int linkat(int from_dir, const char* from, int to_dir, const char* to, int flags) noexcept {
  return plain(watched(to_dir, to), needs::nothing, [&] { return REAL(linkat)(from_dir, from, to_dir, to, flags); });
}
int mkdir(const char* path, mode_t rights) noexcept {
  return plain(watched(AT_FDCWD, path), needs::space, [&] { return REAL(mkdir)(path, rights); });
}
int mkdirat(int dir, const char* path, mode_t rights) noexcept {
  return plain(watched(dir, path), needs::space, [&] { return REAL(mkdirat)(dir, path, rights); });
}
int unlink(const char* path) noexcept {
  return plain(watched(AT_FDCWD, path), needs::nothing, [&] { return REAL(unlink)(path); });
}
int unlinkat(int dir, const char* path, int flags) noexcept {
  return plain(watched(dir, path), needs::nothing, [&] { return REAL(unlinkat)(dir, path, flags); });
}
int remove(const char* path) noexcept {
  return plain(watched(AT_FDCWD, path), needs::nothing, [&] { return REAL(remove)(path); });
}
int rmdir(const char* path) noexcept {
  return plain(watched(AT_FDCWD, path), needs::nothing, [&] { return REAL(rmdir)(path); });
}

#define OPENS(name, dir_expression, ...)                                                              \
  va_list more;                                                                                       \
  va_start(more, flags);                                                                              \
  const mode_t rights = (flags & (O_CREAT | O_TMPFILE)) ? static_cast<mode_t>(va_arg(more, int)) : 0; \
  va_end(more);                                                                                       \
  return plain((flags & creating) && watched(dir_expression, path), needs::space_and_time,            \
               [&] { return REAL(name)(__VA_ARGS__ path, flags, rights); })

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
int creat(const char* path, mode_t rights) {
  return plain(watched(AT_FDCWD, path), needs::space, [&] { return REAL(creat)(path, rights); });
}

}  // extern "C"
