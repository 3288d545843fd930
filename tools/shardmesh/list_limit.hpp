// SPDX-License-Identifier: Apache-2.0
// --limit N: the number of things that a command lists before it counts the rest. 0 means the same in each command.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tool {

/// The value of --limit.
struct list_limit {
  std::int64_t given = -1;  // -1: the option is not given; 0: no limit

  /// The number of things to list where a command lists `by_default` things without the option. The largest result is
  /// INT64_MAX, so that one can be added.
  std::size_t most(std::size_t by_default) const {
    if (given < 0) return by_default;
    return static_cast<std::size_t>(given == 0 ? INT64_MAX : given);
  }
};

}  // namespace tool
