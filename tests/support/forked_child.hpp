// SPDX-License-Identifier: Apache-2.0
// forked_child: what a forked child does with its copies of the parent's objects, and how it ends.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include <sanitized.hpp>

#ifdef SHARDMESH_TEST_SANITIZED
inline const pid_t first_process = ::getpid();
/// LeakSanitizer asks at the end of a process. In a forked child it would take the stacks of the parent's threads for
/// lost, and everything that they hold for leaks.
extern "C" __attribute__((weak)) int __lsan_is_turned_off() {
  return static_cast<int>(::getpid() != first_process);
}
#endif

/// The status with which a process ended; 255 when a signal ended it.
inline int exit_status_of(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return 255;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/// Does the work in a forked child, which ends with the status that the work returns and destroys nothing. A hang ends
/// it by a signal.
inline int status_of_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    std::_Exit(work());
  }
  return exit_status_of(child);
}
