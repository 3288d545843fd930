// SPDX-License-Identifier: Apache-2.0
#include "signals.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <stop_token>
#include <string_view>
#include <thread>

#include "command.hpp"
#include "console.hpp"

namespace tool {
namespace {

std::atomic<bool> unwinds = false;

void say(int descriptor, std::string_view text) {
  [[maybe_unused]] const auto written = ::write(descriptor, text.data(), text.size());
}

[[noreturn]] void end() {
  say(STDERR_FILENO, "shardmesh: interrupted\n");
  // Output is kept until the end of the command, so stdout is still empty here.
  if (is_json()) say(STDOUT_FILENO, interrupted_document());
  ::_exit(not_completed);
}

// One thread waits for the signals, and all others block them: unlike a handler, it may call any function.
void wait_for_signals(const sigset_t& awaited, std::stop_source source) {
  for (bool is_first = true;; is_first = false) {
    int number = 0;
    if (::sigwait(&awaited, &number) != 0) continue;
    if (!is_first || !unwinds) end();
    source.request_stop();
  }
}

}  // namespace

std::stop_token end_on_signals() {
  ::signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is an error of the write
  sigset_t awaited;
  ::sigemptyset(&awaited);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction current{};
    if (::sigaction(number, nullptr, &current) == 0 && current.sa_handler != SIG_IGN) ::sigaddset(&awaited, number);
  }
  ::pthread_sigmask(SIG_BLOCK, &awaited, nullptr);
  std::stop_source source;
  try {
    std::thread([awaited, source] { wait_for_signals(awaited, source); }).detach();
  } catch (const std::exception&) {
    ::pthread_sigmask(SIG_UNBLOCK, &awaited, nullptr);  // no thread available: signals end the process
  }
  return source.get_token();
}

unwinding_on_signals::unwinding_on_signals() {
  unwinds = true;
}
// The output is in its place now. If a signal ended the command here, status 3 would say that it is not.
unwinding_on_signals::~unwinding_on_signals() = default;

}  // namespace tool
