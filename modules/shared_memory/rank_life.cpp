// SPDX-License-Identifier: Apache-2.0
// The ranks of a segment: their places, whether they live, and their last calls.
module;
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
module shardmesh.shared_memory;

import shardmesh.comm;
import :segment;

namespace shardmesh::shared_memory {
namespace {

// Whether a process has ended; also true for a zombie.
bool has_ended(pid_t process) {
  const auto file = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  if (file < 0) return errno == ESRCH;
  ::pollfd ended{file, POLLIN, 0};
  const bool is_over = ::poll(&ended, 1, 0) == 1;
  ::close(file);
  return is_over;
}

// Returns the start time of a process, in ticks since boot, or 0 if it is unknown.
std::uint64_t began_at(pid_t process) {
  const int file = ::open(fmt::format("/proc/{}/stat", process).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  std::array<char, 1024> text{};
  const ssize_t size = ::read(file, text.data(), text.size());
  ::close(file);
  std::string_view rest(text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  rest.remove_prefix(std::min(rest.size(), rest.rfind(')') + 1));  // the program's name may contain anything
  constexpr int fields_before = 20;                                // before the start time, each after a blank
  for (int field = 0; field < fields_before; ++field) rest.remove_prefix(std::min(rest.size(), rest.find(' ') + 1));
  std::uint64_t ticks = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), ticks);
  return ticks;
}

}  // namespace

result<void> segment::take_place(std::int32_t rank, const position& guard) {
  desk& mine = desk_of(rank);
  // Take the lock first: a process that sees the rank as joined may check at once whether it lives.
  struct ::flock life{};
  life.l_type = F_WRLCK;
  life.l_whence = SEEK_SET;
  life.l_start = rank;
  life.l_len = 1;
  const auto taken = [&] {
    return fail(errc::invalid_argument, fmt::format("rank {} has joined this group already", rank)).with_rank(rank);
  };
  if (mine.state.load() != presence::absent || ::fcntl(file_, F_OFD_SETLK, &life) != 0) return taken();
  if (mine.state.load() != presence::absent) return taken();  // it left between the two checks
  mine.process.store(static_cast<std::uint32_t>(::getpid()));
  mine.began.store(began_at(::getpid()));
  mine.guard_address.store(reinterpret_cast<std::uintptr_t>(&guard));
  mine.guard.store(guard.load());
  mine.state.store(presence::joined);
  return {};
}

bool segment::is_alive(std::int32_t rank) {
  desk& other = desk_of(rank);
  if (other.state.load() != presence::joined) return true;
  struct ::flock life{};
  life.l_type = F_WRLCK;
  life.l_whence = SEEK_SET;
  life.l_start = rank;
  life.l_len = 1;
  if (::fcntl(file_, F_OFD_GETLK, &life) == 0 && life.l_type == F_UNLCK) return other.state.load() != presence::joined;
  // A forked child of the rank may still hold the lock, and another process may have the rank's process id by now.
  const auto process = static_cast<pid_t>(other.process.load());
  if (process == 0) return true;
  if (has_ended(process)) return false;
  const std::uint64_t then = other.began.load(), now = began_at(process);
  return then == 0 || now == 0 || then == now;
}

void segment::note_call(std::int32_t rank, std::string_view part) {
  desk& mine = desk_of(rank);
  // Stores character by character: a concurrent reader may see a mixture of two names, which does no harm.
  const std::size_t length = std::min(part.size(), mine.call.size() - 1);
  for (std::size_t i = 0; i < length; ++i) mine.call[i].store(part[i], std::memory_order_relaxed);
  mine.call[length].store(0, std::memory_order_relaxed);
  mine.called_at.store(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1),
                       std::memory_order_relaxed);
}

std::string segment::last_call(std::int32_t rank) {
  desk& other = desk_of(rank);
  const std::int64_t then = other.called_at.load(std::memory_order_relaxed);
  if (then == 0) return fmt::format("rank {} has made no named call", rank);
  std::string call;
  for (const std::atomic<char>& letter : other.call) {
    const char c = letter.load(std::memory_order_relaxed);
    if (c == 0) break;
    call += c;
  }
  const auto now = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  return fmt::format("rank {} was last in {}, {:.3g} s ago", rank, call, static_cast<double>(now - then) / 1e9);
}

}  // namespace shardmesh::shared_memory
