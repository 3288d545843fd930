// SPDX-License-Identifier: Apache-2.0
// The comparison of `shardmesh diff`, for other commands that compare two checkpoints.
#pragma once
#include <string>

#include "command.hpp"

namespace tool {

/// Compares two checkpoints, and prints the differences as `shardmesh diff LEFT RIGHT` does. Returns the exit status.
int compare_checkpoints(const std::string& left, const std::string& right, bool json, const common_options& common);

}  // namespace tool
