// SPDX-License-Identifier: Apache-2.0
// An LD_PRELOAD library that denies a resource to a command at a chosen call, to prove that the command ends with an
// error and does not crash. It counts the calls of one kind while `main` runs. It fails call number $FAULT_AT (from 1),
// and with FAULT_STICKY=1 every later one:
//   FAULT_KIND=memory  malloc and related functions return null
//   FAULT_KIND=thread  pthread_create returns EAGAIN
//   FAULT_KIND=read    opening, reading, listing, and querying files below $FAULT_UNDER fails with $FAULT_ERRNO
//                      (default EIO); with FAULT_SHORT=1 a read returns half of its bytes instead
// At the end it writes the number of calls to $FAULT_COUNT_FILE. For calls that change files, see fault_preload.cpp.
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "preload.hpp"

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

enum class resource { none, memory, thread, read };

// Read before `main` runs, while nothing is counted.
resource kind = resource::none;
long at = 0;
int error = EIO;
bool sticky = false, is_short = false;
preload::folder under;
std::atomic<bool> running{false};
std::atomic<long> calls{0};

bool is_set(const char* name) {
  const char* text = getenv(name);
  return text && *text == '1';
}

void read_settings() {
  const char* what = getenv("FAULT_KIND");
  if (!what) return;
  kind = !strcmp(what, "memory")   ? resource::memory
         : !strcmp(what, "thread") ? resource::thread
         : !strcmp(what, "read")   ? resource::read
                                   : resource::none;
  if (const char* text = getenv("FAULT_AT")) at = atol(text);
  if (const char* text = getenv("FAULT_ERRNO")) error = atoi(text);
  sticky = is_set("FAULT_STICKY");
  is_short = is_set("FAULT_SHORT");
  under.set(getenv("FAULT_UNDER"));
}

void write_count() {
  const char* file = getenv("FAULT_COUNT_FILE");
  if (!file) return;
  char text[32];
  const int length = snprintf(text, sizeof text, "%ld\n", calls.load());
  const long fd = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0) return;
  syscall(SYS_write, fd, text, length);
  syscall(SYS_close, fd);
}

// Counts a call of this kind; returns whether it must fail. Only reads can be short.
bool fails(resource what) {
  if (kind != what || !running.load(std::memory_order_relaxed)) return false;
  const long number = ++calls;
  return at > 0 && (number == at || (sticky && number > at));
}

bool watched(int fd) {
  return kind == resource::read && under.holds(fd);
}

bool refused(bool relevant) {
  if (!relevant || is_short || !fails(resource::read)) return false;
  errno = error;
  return true;
}

template <class Read>
ssize_t read_part(int fd, size_t size, Read&& read) {
  if (!watched(fd) || !fails(resource::read)) return read(size);
  if (is_short) return read((size + 1) / 2);
  errno = error;
  return -1;
}

using main_function = int(int, char**, char**);
main_function* real_main = nullptr;

int counted_main(int count, char** arguments, char** environment) {
  running = true;
  const int status = real_main(count, arguments, environment);
  running = false;
  return status;
}

}  // namespace

extern "C" {

int __libc_start_main(main_function* program, int count, char** arguments, void (*init)(), void (*fini)(),
                      void (*loader_fini)(), void* stack_end) {
  using start = int(main_function*, int, char**, void (*)(), void (*)(), void (*)(), void*);
  read_settings();
  atexit(write_count);
  real_main = program;
  return (*preload::real<start>("__libc_start_main"))(counted_main, count, arguments, init, fini, loader_fini,
                                                      stack_end);
}

void* malloc(size_t size) {
  if (fails(resource::memory)) return errno = ENOMEM, nullptr;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  if (fails(resource::memory)) return errno = ENOMEM, nullptr;
  return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
  if (fails(resource::memory)) return errno = ENOMEM, nullptr;
  return __libc_realloc(memory, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  if (fails(resource::memory)) return errno = ENOMEM, nullptr;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  if (fails(resource::memory)) return ENOMEM;
  *memory = __libc_memalign(alignment, size);
  return *memory ? 0 : ENOMEM;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) {
  if (fails(resource::thread)) return EAGAIN;
  return REAL(pthread_create)(thread, attributes, body, argument);
}

#define OPENS(name, watches, ...)                                                                     \
  va_list more;                                                                                       \
  va_start(more, flags);                                                                              \
  const mode_t rights = (flags & (O_CREAT | O_TMPFILE)) ? static_cast<mode_t>(va_arg(more, int)) : 0; \
  va_end(more);                                                                                       \
  if (refused(kind == resource::read && (watches))) return -1;                                        \
  return REAL(name)(__VA_ARGS__ path, flags, rights)

int open(const char* path, int flags, ...) {
  OPENS(open, under.holds(path), );
}
int open64(const char* path, int flags, ...) {
  OPENS(open64, under.holds(path), );
}
int openat(int dir, const char* path, int flags, ...) {
  OPENS(openat, under.holds(path) || (path[0] != '/' && watched(dir)), dir, );
}
FILE* fopen(const char* path, const char* how) {
  if (refused(kind == resource::read && under.holds(path))) return nullptr;
  return REAL(fopen)(path, how);
}
FILE* fopen64(const char* path, const char* how) {
  if (refused(kind == resource::read && under.holds(path))) return nullptr;
  return REAL(fopen64)(path, how);
}
DIR* opendir(const char* path) {
  if (refused(kind == resource::read && under.holds(path))) return nullptr;
  return REAL(opendir)(path);
}
dirent* readdir(DIR* folder) {
  if (refused(kind == resource::read && watched(dirfd(folder)))) return nullptr;
  return REAL(readdir)(folder);
}
int statvfs(const char* path, struct statvfs* into) noexcept {
  if (refused(kind == resource::read && under.holds(path))) return -1;
  return (*preload::real<int(const char*, struct statvfs*)>("statvfs"))(path, into);
}
ssize_t read(int fd, void* data, size_t size) {
  return read_part(fd, size, [&](size_t n) { return REAL(read)(fd, data, n); });
}
ssize_t pread(int fd, void* data, size_t size, off_t from) {
  return read_part(fd, size, [&](size_t n) { return REAL(pread)(fd, data, n, from); });
}
ssize_t preadv2(int fd, const iovec* pieces, int count, off_t from, int flags) {
  if (count != 1) return REAL(preadv2)(fd, pieces, count, from, flags);
  return read_part(fd, pieces->iov_len, [&](size_t n) {
    const iovec part{pieces->iov_base, n};
    return REAL(preadv2)(fd, &part, 1, from, flags);
  });
}
ssize_t pread64(int fd, void* data, size_t size, off64_t from) {
  return read_part(fd, size, [&](size_t n) { return REAL(pread64)(fd, data, n, from); });
}

}  // extern "C"
