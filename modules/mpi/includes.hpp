// SPDX-License-Identifier: Apache-2.0
// The includes of this room's partitions and bodies, for their global module fragments: the C interface of MPI, the
// standard library, and unistd.h. Private to this room.
// The partitions say `inline` at members defined in a class, because in a named module these are not implicitly inline.
#pragma once
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
