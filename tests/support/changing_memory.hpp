// SPDX-License-Identifier: Apache-2.0
// Memory that another process keeps changing while a test saves it.
#pragma once
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

// Memory that another process changes until this object is destroyed. A process, so that no thread of the test races
// with the save.
class changing_memory {
 public:
  explicit changing_memory(std::size_t bytes)
      : bytes_(bytes),
        data_(static_cast<std::uint64_t*>(
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    if (data_ == MAP_FAILED) std::abort();
    changer_ = ::fork();
    if (changer_ < 0) std::abort();
    if (changer_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto* const words = const_cast<volatile std::uint64_t*>(data_);
    for (std::uint64_t value = 1;; ++value)
      for (std::size_t i = 0; i < bytes_ / sizeof(std::uint64_t); i += 512) words[i] = value;
  }
  changing_memory(const changing_memory&) = delete;
  ~changing_memory() {
    ::kill(changer_, SIGKILL);
    ::waitpid(changer_, nullptr, 0);
    ::munmap(data_, bytes_);
  }
  std::byte* data() const { return reinterpret_cast<std::byte*>(data_); }
  // Returns once the other process has started writing.
  void wait_for_changes() const {
    while (*const_cast<volatile std::uint64_t*>(data_) < 2) ::usleep(100);
  }

 private:
  std::size_t bytes_;
  std::uint64_t* data_;
  pid_t changer_ = 0;
};
