// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <array>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
module shardmesh.simulation;

import :thread_limits;

namespace shardmesh {
namespace {

// A file with a number, and how much of it each rank takes.
struct system_limit {
  const char* name;
  const char* path;
  std::int64_t per_rank;
};

// A thread's stack and the guard page beside it are two mappings.
constexpr std::array limits = {
    system_limit{"kernel.threads-max", "/proc/sys/kernel/threads-max", 1},
    system_limit{"kernel.pid_max", "/proc/sys/kernel/pid_max", 1},
    system_limit{"vm.max_map_count", "/proc/sys/vm/max_map_count", 2},
    system_limit{"pids.max of the cgroup", "/sys/fs/cgroup/pids.max", 1},
};

// Returns the number in a file, or nothing if there is none ("max", or no such file).
std::optional<std::int64_t> number_in(const char* path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

result<void> check_limit(const char* name, std::int64_t needed, std::int64_t most, std::int32_t ranks) {
  if (needed < most) return {};
  return fail(errc::unsupported, fmt::format("the system permits too few threads for {} ({})",
                                             detail::counted(ranks, "simulated rank"), name))
      .with_values(fmt::format("more than {}", needed), fmt::to_string(most))
      .with_hint(fmt::format("raise {}, or simulate fewer ranks", name));
}

}  // namespace

result<void> check_thread_limits(std::int32_t ranks) {
  for (const system_limit& limit : limits)
    if (const auto most = number_in(limit.path))
      SHARDMESH_TRY(check_limit(limit.name, limit.per_rank * ranks, *most, ranks));
  ::rlimit processes{};
  // The limit of a user's processes, which counts threads, does not bind root.
  if (::geteuid() == 0 || ::getrlimit(RLIMIT_NPROC, &processes) != 0 || processes.rlim_cur > INT32_MAX) return {};
  return check_limit("ulimit -u", ranks, static_cast<std::int64_t>(processes.rlim_cur), ranks);
}

error thread_not_started(int sys, std::int32_t rank, std::int32_t ranks) {
  return fail(errc::unsupported, fmt::format("cannot start the thread of simulated rank {} of {}: {}", rank, ranks,
                                             std::generic_category().message(sys)))
      .with_rank(rank)
      .with_hint(
          "raise the limits of threads (ulimit -u, kernel.threads-max, kernel.pid_max, pids.max of the cgroup) "
          "and of mappings (vm.max_map_count), or simulate fewer ranks");
}

}  // namespace shardmesh
