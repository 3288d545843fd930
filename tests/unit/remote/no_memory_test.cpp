// SPDX-License-Identifier: Apache-2.0
// Tests a client whose thread gets no memory: the calls concerned fail, the program goes on, and so does the client.
// This program has its own operator new, which fails on demand in one thread.
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <http_server.hpp>
#include <iterator>
#include <new>
#include <random_seed.hpp>
#include <sanitized.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <watchdog.hpp>

#include "http_reads.hpp"

import shardmesh.remote;

using namespace shardmesh;
using namespace shardmesh::remote;

namespace {

std::atomic<pid_t> starved = 0;  // the thread whose allocations fail; 0: none
std::atomic<std::int64_t> allocations_left = 0;
std::atomic<std::int64_t> failed_allocations = 0;
std::atomic<bool> fails_for_good = false;  // all later allocations fail, too

// Whether this allocation fails.
[[maybe_unused]] bool has_no_memory() {
  const pid_t thread = starved.load(std::memory_order_relaxed);
  if (thread == 0 || thread != static_cast<pid_t>(::syscall(SYS_gettid))) return false;
  const std::int64_t left = allocations_left--;
  if (left > 0 || (left < 0 && !fails_for_good)) return false;
  ++failed_allocations;
  return true;
}

std::set<pid_t> threads() {
  std::set<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    found.insert(static_cast<pid_t>(std::stol(entry.path().filename().string())));
  return found;
}

// A client, and its thread.
struct starving_client {
  starving_client() {
    const std::set<pid_t> with = threads();
    std::vector<pid_t> made;
    std::set_difference(with.begin(), with.end(), before.begin(), before.end(), std::back_inserter(made));
    REQUIRE(made.size() == 1);
    thread = made.front();
  }
  std::set<pid_t> before = threads();
  http_client client{http_reads::impatient()};
  pid_t thread = 0;
};

// Lets the allocation of this number fail while `call` runs. Returns how many failed.
template <class Call>
std::int64_t starve(pid_t thread, std::int64_t number, bool for_good, Call&& call) {
  failed_allocations = 0;
  allocations_left = number;
  fails_for_good = for_good;
  starved = thread;
  call();
  starved = 0;
  return failed_allocations;
}

}  // namespace

#ifndef SHARDMESH_TEST_SANITIZED
void* operator new(std::size_t size) {
  if (void* const memory = has_no_memory() ? nullptr : std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void* operator new[](std::size_t size) {
  return operator new(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
#endif

TEST_CASE("if the thread of a client gets no memory, the call fails, and the next one succeeds") {
#ifdef SHARDMESH_TEST_SANITIZED
  SKIP("the sanitizer's own operator new does not fail");
#endif
  const watchdog dog{std::chrono::seconds(240)};
  http_server::server server;
  const std::string content = http_reads::random_text(200'000, random_seed::seed());
  server.put("/object", content);
  const http_request request{.url = server.url("/object"), .headers = {{"X-Long", std::string(100, 'x')}}};
  for (const bool is_read : {false, true})
    for (const bool for_good : {false, true}) {
      std::int64_t failures = 0, refusals = 0;
      for (std::int64_t number = 0, failed = 1; failed > 0; ++number, failures += failed) {
        INFO((is_read ? "read" : "send") << ", allocation " << number);
        REQUIRE(number < 2'000);
        starving_client own;
        std::string read(content.size(), '\0');
        // Returns whether the answer is right; an error otherwise.
        const auto call = [&]() -> result<bool> {
          if (is_read) {
            const http_range range{0, std::as_writable_bytes(std::span(read))};
            if (auto done = own.client.read(request, {&range, 1}, "\"1\"", std::ssize(content)); !done)
              return std::move(done).error();
            return read == content;
          }
          const auto answer = own.client.send(request, 1 << 20);
          if (!answer) return answer.error();
          const std::string_view body(reinterpret_cast<const char*>(answer->body.data()), answer->body.size());
          return body == content;
        };
        REQUIRE(call().value());  // libcurl is loaded, and the connection is there
        failed = starve(own.thread, number, for_good, [&] {
          const auto done = call();
          if (done) {
            CHECK(*done);
            return;
          }
          ++refusals;
          CHECK(done.error().code == errc::no_memory);
          CHECK(done.error().file == server.url("/object"));
          CHECK(done.error().message == "there is no memory for the request");
        });
        CHECK(call().value());
      }
      INFO("failures " << failures);
      CHECK(refusals >= 5);
    }
}
