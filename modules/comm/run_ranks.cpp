// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>
module shardmesh.comm;

namespace shardmesh {
result<void> detail::run_body(any_communicator& comm, function_ref<result<void>(any_communicator&)> body) {
  try {
    return body(comm);
  } catch (const exception& e) {
    return e.error();
  } catch (const std::exception& e) {
    return fail(errc::communication, fmt::format("the function of rank {} threw: {}", comm.rank(), e.what()))
        .with_rank(comm.rank());
  } catch (...) {
    return fail(errc::communication,
                fmt::format("the function of rank {} threw an exception that is not a std::exception", comm.rank()))
        .with_rank(comm.rank());
  }
}

result<void> run_ranks(std::int32_t size, function_ref<result<void>(any_communicator&)> body) {
  if (size < 1)
    return fail(errc::invalid_argument, "a group needs at least one rank")
        .with_values("1 or more", fmt::to_string(size));
  const thread_group group(size);
  std::atomic<bool> failed{false};
  const auto run_rank = [&](std::int32_t rank) {
    any_communicator comm(group.communicator(rank));
    if (const auto done = detail::run_body(comm, body); !done) {
      failed = true;
      comm.abort(done.error());  // no effect when this error is a consequence of an earlier one
    }
    group.leave(rank);
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<std::size_t>(size));
    try {
      for (std::int32_t rank = 0; rank < size; ++rank) threads.emplace_back(run_rank, rank);
    } catch (const std::system_error& e) {
      failed = true;
      group.communicator(0).abort(
          fail(errc::communication, fmt::format("cannot start {} threads: {}", size, e.what())));
    }
  }
  if (failed) return group.status();
  return {};
}

}  // namespace shardmesh
