// SPDX-License-Identifier: Apache-2.0
// Helpers for forked children, which hold copies of the parent's objects and end without destroying them.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include <sanitized.hpp>

#ifdef SHARDMESH_TEST_SANITIZED
inline const pid_t first_process = ::getpid();
/// Turns LeakSanitizer off in forked children. There it would take the stacks of the parent's threads for lost, and
/// report everything that they hold as leaks.
extern "C" __attribute__((weak)) int __lsan_is_turned_off() {
  return static_cast<int>(::getpid() != first_process);
}
#endif

/// The exit status of a process; 255 if a signal ended it.
[[nodiscard]] inline int exit_status_of(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return 255;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/// Does the work in a forked child, which exits with the returned status and destroys no object. A signal ends a child
/// that hangs.
[[nodiscard]] inline int status_of_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    std::_Exit(work());
  }
  return exit_status_of(child);
}
