// SPDX-License-Identifier: Apache-2.0
module;
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
module shardmesh.storage;

import :file_ahead;
import :uninterrupted;

namespace shardmesh {
namespace {

// Shorter reads are descriptions, or pieces with gaps between them: the kernel's own read-ahead serves them.
constexpr std::size_t least_bytes = 64 << 10;
// Reads that are at most this far apart are in sequence: a record of a ZIP archive has a header, and is aligned.
constexpr std::int64_t widest_gap = 64 << 10;
constexpr std::int64_t widest_window = 16 << 20;

std::ptrdiff_t read_waiting(int fd, std::int64_t offset, std::span<std::byte> out) {
  return uninterrupted([&] { return ::pread(fd, out.data(), out.size(), offset); });
}

}  // namespace

std::ptrdiff_t file_ahead::read(int fd, std::int64_t offset, std::span<std::byte> out) {
  if (out.size() < least_bytes || unsupported_.load(std::memory_order_relaxed)) return read_waiting(fd, offset, out);
  const ::iovec piece{out.data(), out.size()};
  const std::ptrdiff_t got = uninterrupted([&] { return ::preadv2(fd, &piece, 1, offset, RWF_NOWAIT); });
  if (got > 0) {
    if (nears_end(offset + got)) request(fd, offset, offset + got);
    return got;
  }
  // Some kernels return 0 for bytes that are not in the cache. At the end of the file, the read below also returns 0.
  if (got == 0 || errno == EAGAIN) {
    out = out.first(std::min(out.size(), static_cast<std::size_t>(widest_window)));
    request(fd, offset, offset + static_cast<std::int64_t>(out.size()));
  } else if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) {
    unsupported_.store(true, std::memory_order_relaxed);
  } else {
    return got;
  }
  return read_waiting(fd, offset, out);
}

// Whether a read up to `end` has used half of the window: the time to request the next one, while the disk still works.
bool file_ahead::nears_end(std::int64_t end) const {
  const std::int64_t window = window_.load(std::memory_order_relaxed);
  return window > 0 && end > requested_.load(std::memory_order_relaxed) - window / 2;
}

void file_ahead::request(int fd, std::int64_t begin, std::int64_t end) {
  std::int64_t from = begin, to = end;
  {
    const std::scoped_lock guard(lock_);
    const std::int64_t requested = requested_.load(std::memory_order_relaxed);
    const std::int64_t last_window = window_.load(std::memory_order_relaxed), size = end - begin;
    // Threads read what was requested in any order, but nothing far before it: that is a second pass over the file.
    const std::int64_t earliest = std::max(first_, requested - 2 * last_window - size);
    if (requested > 0 && begin >= earliest && begin <= requested + widest_gap) {
      const std::int64_t window = std::min({std::max(2 * last_window, size), end - first_, widest_window});
      from = std::max(begin, requested);
      to = std::max(end + window, requested);
      window_.store(window, std::memory_order_relaxed);
    } else {
      first_ = begin;
      window_.store(0, std::memory_order_relaxed);
    }
    requested_.store(to, std::memory_order_relaxed);
  }
  // Advice: an error changes nothing, because the read reports its own.
  if (to > from) static_cast<void>(::posix_fadvise(fd, from, to - from, POSIX_FADV_WILLNEED));
}

}  // namespace shardmesh
