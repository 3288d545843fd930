// SPDX-License-Identifier: Apache-2.0
// Tests that broken preconditions of inline members abort in every build. Consumers and the library share one
// definition, even if their NDEBUG differs.
#ifndef NDEBUG
#define NDEBUG
#endif
#include <shardmesh/assert.hpp>
#include <shardmesh/extents.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
import shardmesh.core;

using namespace shardmesh;

namespace {

// The child's stderr text before it aborts; "" when it does not abort.
std::string last_words(const std::function<void()>& body) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::signal(SIGABRT, SIG_DFL);
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said;
  char buffer[256];
  for (ssize_t n = 0; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    said.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? said : "";
}

}  // namespace

TEST_CASE("a broken precondition of an inline member aborts and names the condition, whatever NDEBUG is") {
  const result<int> none = fail(errc::io, "no value");
  CHECK(last_words([&] { static_cast<void>(*none); }) == "shardmesh: broken precondition: has_value()\n");
  const result<void> fine;
  CHECK(last_words([&] { static_cast<void>(fine.error()); }) == "shardmesh: broken precondition: error_\n");
  extents full = extents::filled(max_rank, 1);
  CHECK(last_words([&] { full.push_back(1); }) == "shardmesh: broken precondition: rank_ < max_rank\n");
  CHECK(full.rank() == max_rank);
}

TEST_CASE("host memory is told from a device's, which is named") {
  const tensor_view here{nullptr, dtype::float32, {device_type::cpu, 0}, {2}, {1}};
  CHECK(check_host_memory(here));
  tensor_view there = here;
  there.where = {device_type::cuda, 3};
  const auto refused = check_host_memory(there);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unsupported);
  CHECK(refused.error().found == "cuda:3");
  for (const device_type type : {device_type::hip, device_type::xpu, device_type::mps, device_type::hpu,
                                 device_type::meta, device_type::other}) {
    there.where = {type, -1};
    CHECK_FALSE(check_host_memory(there));
  }
}
