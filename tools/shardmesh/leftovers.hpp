// SPDX-License-Identifier: Apache-2.0
// Leftovers of killed runs in words, for the commands that name them.
#pragma once
#include <string>
#include <vector>

namespace tool {

/// One line for each dead leftover beside or in `path`; none if they cannot be seen.
std::vector<std::string> leftover_notes(const std::string& path);

}  // namespace tool
