// SPDX-License-Identifier: Apache-2.0
// What the bodies of this room include in their global fragments: the C interface of MPI alone, the standard library,
// and the system's calls for memory of other processes. Private to this room's .cpp units.
// The room's other headers declare types of the module in several units: there, members defined in a class are not
// inline by themselves, hence the word.
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

#include <try.hpp>
