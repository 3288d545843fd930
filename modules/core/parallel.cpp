// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>
module shardmesh.core;

namespace shardmesh {
namespace {

// Converts an exception to an error: the error inside an `exception`, errc::no_memory when memory ran out, else
// errc::io with the text of `what()`.
error error_of(const std::exception_ptr& thrown) {
  const auto no_memory = [] {
    error made = fail(errc::no_memory, "there is not enough memory");
    made.sys = ENOMEM;
    return made;
  };
  try {
    std::rethrow_exception(thrown);
  } catch (const exception& e) {
    return e.error();
  } catch (const std::bad_alloc&) {
    return no_memory();
  } catch (const std::length_error&) {  // a size that no container can have
    return no_memory();
  } catch (const std::exception& e) {
    return fail(errc::io, e.what());
  }
}

// The cause of a failed piece of work. An exception must not leave its thread. The caller's thread converts it to an
// error later, when memory for the error may be free again.
struct failure {
  std::int64_t at;
  error cause;
  std::exception_ptr thrown;
};

}  // namespace

int thread_count(int requested) {
  return requested > 0 ? requested : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

result<void> parallel_for(int threads, std::int64_t count, function_ref<result<void>(std::int64_t)> body) {
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex lock;
  std::optional<failure> first;
  const auto stop = [&](failure why) {
    failed = true;
    const std::scoped_lock guard(lock);
    if (!first || why.at < first->at) first = std::move(why);
  };
  const auto work = [&] {
    for (std::int64_t i = 0; !failed && (i = next++) < count;) {
      try {
        if (auto done = body(i); !done) stop({i, std::move(done).error(), {}});
      } catch (...) {
        stop({i, {}, std::current_exception()});
      }
    }
  };
  {
    const std::int64_t extra = std::min<std::int64_t>(thread_count(threads), count) - 1;
    const detail::call_in_progress* const call = detail::current_call();
    const auto help = [&] {
      const detail::active_call inherited(call);
      work();
    };
    std::vector<std::jthread> helpers;  // joined before what they use is gone
    try {
      for (std::int64_t i = 0; i < extra; ++i) helpers.emplace_back(help);
    } catch (const std::exception&) {  // no more threads, or no memory for one: the threads that run do all the work
    }
    work();
  }
  if (!first) return {};
  return first->thrown ? error_of(first->thrown) : std::move(first->cause);
}

}  // namespace shardmesh
