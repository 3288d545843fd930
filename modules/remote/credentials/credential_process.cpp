// SPDX-License-Identifier: Apache-2.0
module;
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.remote;

import :credential_process;
import :json_members;
import :text_parts;

namespace shardmesh::remote {
namespace {

using clock = std::chrono::steady_clock;

constexpr std::size_t most_output_bytes = std::size_t{64} << 10;
constexpr std::chrono::seconds longest_run{60};
// The time between two checks of the caller's cancellation, and of a program that closed its output but has not ended.
constexpr int slice_ms = 20;

class descriptor {
 public:
  explicit descriptor(int fd = -1) noexcept : fd_(fd) {}
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() { close(); }
  int get() const noexcept { return fd_; }
  void close() noexcept {
    if (const int fd = std::exchange(fd_, -1); fd >= 0) ::close(fd);
  }

 private:
  int fd_;
};

// A child process. Its destructor kills the child if it has not ended, and leaves no zombie.
class child_process {
 public:
  explicit child_process(pid_t id) noexcept : id_(id) {}
  child_process(const child_process&) = delete;
  child_process& operator=(const child_process&) = delete;
  ~child_process() {
    if (id_ <= 0) return;
    ::kill(id_, SIGKILL);
    wait_for_end(0);
  }

  // Returns whether the child has ended.
  bool has_ended() noexcept { return id_ <= 0 || wait_for_end(WNOHANG); }
  // The status of waitpid; 0 if the program ignores SIGCHLD, so that the system keeps no status.
  int status() const noexcept { return status_; }

 private:
  bool wait_for_end(int options) noexcept {
    pid_t ended = 0;
    do ended = ::waitpid(id_, &status_, options);
    while (ended < 0 && errno == EINTR);
    if (ended == 0) return false;
    if (ended < 0) status_ = 0;
    id_ = 0;
    return true;
  }

  pid_t id_;
  int status_ = 0;
};

// The attributes and actions of posix_spawn.
struct spawn_setup {
  posix_spawnattr_t attributes{};
  posix_spawn_file_actions_t actions{};
  int failed;

  // The child writes to `output`.
  explicit spawn_setup(int output) {
    sigset_t none, defaults;
    ::sigemptyset(&none);
    ::sigemptyset(&defaults);
    ::sigaddset(&defaults, SIGPIPE);  // Python ignores it
    failed = ::posix_spawnattr_init(&attributes);
    failed |= ::posix_spawn_file_actions_init(&actions);
    failed |= ::posix_spawnattr_setsigmask(&attributes, &none);
    failed |= ::posix_spawnattr_setsigdefault(&attributes, &defaults);
    failed |= ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    // In this order: `output` is 0 if we run without standard input.
    failed |= ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    failed |= ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  spawn_setup(const spawn_setup&) = delete;
  spawn_setup& operator=(const spawn_setup&) = delete;
  ~spawn_setup() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
};

result<pid_t> start(std::vector<std::string> arguments, int output) {
  std::vector<char*> pointers;
  for (std::string& one : arguments) pointers.push_back(one.data());
  pointers.push_back(nullptr);
  const spawn_setup setup(output);
  if (setup.failed != 0) return fail_sys(ENOMEM, "cannot start the credential process", arguments.front());
  pid_t id = 0;
  if (const int sys =
          ::posix_spawnp(&id, pointers.front(), &setup.actions, &setup.attributes, pointers.data(), environ);
      sys != 0)
    return fail_sys(sys, "cannot start the credential process", arguments.front())
        .with_hint("correct credential_process in the profile");
  return id;
}

// The limits of one run: the caller's, and a minute.
struct run_limits {
  const call_options& call;
  clock::time_point end = clock::now() + longest_run;

  result<void> check(const std::string& program) const {
    auto left = shardmesh::detail::check_limits(call, "credential search");
    if (left && clock::now() >= end)
      left = fail(errc::io, fmt::format("the credential process did not end within {} s", longest_run.count()));
    if (!left) return std::move(left).error().with_file(program);
    return {};
  }
};

// Reads until the child closes its output.
result<secret> read_output(int fd, const std::string& program, const run_limits& limits) {
  std::string text;
  text.reserve(most_output_bytes + 1);  // no reallocation leaves a copy
  std::array<char, 4096> buffer{};
  const auto finish = [&](result<secret> made) {
    wipe(text);
    wipe_memory(std::as_writable_bytes(std::span(buffer)));
    return made;
  };
  for (;;) {
    if (auto checked = limits.check(program); !checked) return finish(std::move(checked).error());
    pollfd waiting{fd, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, slice_ms);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t got = ready < 0 ? -1 : ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return finish(fail_sys(errno, "cannot read the output of the credential process", program));
    if (got == 0) return finish(secret(text));
    if (text.size() + static_cast<std::size_t>(got) > most_output_bytes)
      return finish(fail(errc::bad_format, "the credential process prints too much")
                        .with_file(program)
                        .with_values(fmt::format("at most {} bytes", most_output_bytes), "more"));
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

result<void> wait_for(child_process& child, const std::string& program, const run_limits& limits) {
  while (!child.has_ended()) {
    SHARDMESH_TRY(limits.check(program));
    ::poll(nullptr, 0, slice_ms);
  }
  if (WIFEXITED(child.status()) && WEXITSTATUS(child.status()) == 0) return {};
  return fail(errc::io, "the credential process failed")
      .with_file(program)
      .with_values("exit status 0", WIFEXITED(child.status())
                                        ? fmt::format("exit status {}", WEXITSTATUS(child.status()))
                                        : fmt::format("signal {}", WTERMSIG(child.status())))
      .with_hint("run the program by hand to see its messages");
}

}  // namespace

result<std::vector<std::string>> split_arguments(std::string_view command) {
  std::vector<std::string> made;
  bool is_in_word = false;
  char quote = '\0';
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    if (c == '\0') return fail(errc::invalid_argument, "the command of credential_process has a NUL character");
    if (quote == '\0' && (is_blank(c) || c == '\n' || c == '\r')) {
      is_in_word = false;
      continue;
    }
    if (!std::exchange(is_in_word, true)) made.emplace_back();
    std::string& word = made.back();
    const bool has_next = i + 1 < command.size();
    if (c == quote) {
      quote = '\0';
    } else if (quote == '\0' && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == '\\' && has_next &&
               (quote == '\0' || (quote == '"' && (command[i + 1] == '"' || command[i + 1] == '\\')))) {
      word += command[++i];
    } else {
      word += c;
    }
  }
  if (quote != '\0')
    return fail(errc::invalid_argument, "the command of credential_process has an open quote")
        .with_hint(fmt::format("close the {}", quote));
  if (made.empty() || made.front().empty())
    return fail(errc::invalid_argument, "the command of credential_process names no program")
        .with_hint("write credential_process = PROGRAM ARGUMENT...");
  return made;
}

result<aws_credentials> process_credentials(std::string_view command, const call_options& call) {
  SHARDMESH_TRY(std::vector<std::string> arguments, split_arguments(command));
  const std::string program = arguments.front();
  const run_limits limits{call};
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail_sys(errno, "cannot make a pipe", program);
  descriptor reading(ends[0]), writing(ends[1]);
  SHARDMESH_TRY(const pid_t id, start(std::move(arguments), writing.get()));
  child_process child(id);
  writing.close();
  SHARDMESH_TRY(const secret output, read_output(reading.get(), program, limits));
  reading.close();
  SHARDMESH_TRY(wait_for(child, program, limits));

  const std::string what = fmt::format("the output of the credential process {}", program);
  SHARDMESH_TRY(const secret_members members, json_members(output.reveal(), "", what));
  if (const std::string_view version = member(members, "Version"); version != "1")
    return fail(errc::bad_format, fmt::format("{} has an unknown version", what))
        .with_values("\"Version\": 1", shortened(escaped(version), 40));
  return credentials_of(members, {.session_token = "SessionToken"}, what);
}

}  // namespace shardmesh::remote
