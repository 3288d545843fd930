// SPDX-License-Identifier: Apache-2.0
// Runs a program and counts the system calls of all its threads and children after it has started.
//   count_calls FILE PROGRAM [ARGUMENT...]
// Writes one JSON document to FILE and exits with the program's status, or with 77 where this machine forbids tracing:
//   {"calls": N, "by_number": {"0": N, ...}, "peak_bytes": N}
// `calls` excludes waits for other threads (their number is random) and the allocator's requests for memory (their
// number depends on the thread count). strace would do, but not every test machine has it.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>

namespace {

constexpr int skipped = 77;
constexpr long left_out[] = {SYS_futex,           SYS_sched_yield, SYS_nanosleep, SYS_clock_nanosleep,
                             SYS_restart_syscall, SYS_brk,         SYS_mmap,      SYS_munmap,
                             SYS_mremap,          SYS_mprotect,    SYS_madvise};

// Makes every system call of the program stop once for the tracer.
bool trace_every_call() {
  sock_filter filter[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_TRACE}};
  const sock_fprog program{1, filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

[[noreturn]] void run_program(char** line) {
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(skipped);
  raise(SIGSTOP);  // until the parent has set its tracing options
  if (!trace_every_call()) _exit(skipped);
  execvp(line[0], line);
  perror(line[0]);
  _exit(127);
}

class counter {
 public:
  explicit counter(pid_t program) : program_(program) {}

  // Returns the program's exit status.
  int count() {
    int status = 0;
    for (pid_t stopped; (stopped = wait4(-1, &status, __WALL, &usage_)) > 0;) {
      if (WIFEXITED(status) || WIFSIGNALED(status)) {
        if (stopped == program_) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        continue;
      }
      go_on(stopped, status);
    }
    return skipped;
  }

  void write(FILE* out) const {
    long all = 0;
    for (const auto& [number, calls] : calls_)
      if (std::find(std::begin(left_out), std::end(left_out), number) == std::end(left_out)) all += calls;
    fprintf(out, "{\"calls\": %ld, \"by_number\": {", all);
    const char* comma = "";
    for (const auto& [number, calls] : calls_) {
      fprintf(out, "%s\"%ld\": %ld", comma, number, calls);
      comma = ", ";
    }
    fprintf(out, "}, \"peak_bytes\": %ld}\n", usage_.ru_maxrss * 1024L);
  }

 private:
  void go_on(pid_t stopped, int status) {
    int signal = WSTOPSIG(status);
    if (const int event = status >> 16; event != 0) {
      if (event == PTRACE_EVENT_EXEC && stopped == program_) calls_.clear();  // the calls so far were another program's
      if (event == PTRACE_EVENT_SECCOMP) note_call(stopped);
      signal = 0;
    } else if (signal == SIGSTOP && (stopped != program_ || !is_set_up_)) {  // a new thread, or the program itself
      if (stopped == program_) {
        is_set_up_ = true;
        ptrace(PTRACE_SETOPTIONS, stopped, nullptr,
               PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC |
                   PTRACE_O_TRACESECCOMP);
      }
      signal = 0;
    }
    ptrace(PTRACE_CONT, stopped, nullptr, signal);
  }
  void note_call(pid_t stopped) {
    __ptrace_syscall_info info{};
    if (ptrace(PTRACE_GET_SYSCALL_INFO, stopped, sizeof info, &info) > 0) ++calls_[static_cast<long>(info.seccomp.nr)];
  }

  pid_t program_;
  bool is_set_up_ = false;
  rusage usage_{};
  std::map<long, long> calls_;
};

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) {
    fprintf(stderr, "usage: count_calls FILE PROGRAM [ARGUMENT...]\n");
    return 2;
  }
  const pid_t program = fork();
  if (program < 0) return skipped;
  if (program == 0) run_program(arguments + 2);
  counter counting(program);
  const int status = counting.count();
  FILE* const out = fopen(arguments[1], "w");
  if (!out) {
    perror(arguments[1]);
    return 2;
  }
  counting.write(out);
  return fclose(out) == 0 ? status : 2;
}
