// SPDX-License-Identifier: Apache-2.0
module;
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>
#include <host_name.hpp>
#include <process_token.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
module shardmesh.run;

import :run_lock;

namespace shardmesh {
namespace {

std::string this_process() {
  return fmt::format("process {} on host {}", ::getpid(), detail::host_name());
}

// The owner that the file names; another program may have written anything into it.
std::string owner_in(int fd) {
  std::array<char, 512> text{};
  const ::ssize_t size = ::pread(fd, text.data(), text.size(), 0);
  std::string owner(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  owner.resize(std::min(owner.find('\n'), owner.size()));
  return owner.empty() ? "an unknown process" : escaped(owner);
}

}  // namespace

run_lock& run_lock::operator=(run_lock&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(maker_, other.maker_);
  return *this;
}

run_lock::run_lock(int fd) : fd_(fd), maker_(detail::process_token()) {}

run_lock::~run_lock() {
  if (fd_ < 0) return;
  // A child shares the lock, and closing this descriptor alone would keep the lock until the child ends.
  if (maker_ == detail::process_token()) ::flock(fd_, LOCK_UN);
  ::close(fd_);
}

result<run_lock> run_lock::take(const std::filesystem::path& run) {
  const std::filesystem::path file = run / run_lock_name;
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  if (fd < 0) return fail_sys(errno, "cannot open the lock of the run", file.string());
  run_lock made(fd);
  int sys = 0;
  do sys = ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  while (sys == EINTR);
  if (sys == EWOULDBLOCK)
    return fail(errc::destination_exists, "another run writes into this folder")
        .with_file(run.string())
        .with_values("", owner_in(fd))
        .with_hint("stop the other run, or choose another folder");
  if (sys == ENOLCK || sys == ENOSYS || sys == EOPNOTSUPP) return run_lock();
  if (sys != 0) return fail_sys(sys, "cannot lock the run", file.string());
  // The text is for people. A disk without room for it does not stop the run.
  const std::string text = this_process() + "\n";
  if (::ftruncate(fd, 0) == 0) static_cast<void>(!::pwrite(fd, text.data(), text.size(), 0));
  return made;
}

}  // namespace shardmesh
