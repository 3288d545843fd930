// SPDX-License-Identifier: Apache-2.0
// The members of a document of failure, by command. The rest of such a document is in console.cpp.
#pragma once
#include <string_view>

#include "json_writer.hpp"

namespace tool {

/// Writes, empty, the members that a document of this command always has, except "ok" and its problems. An action with
/// a document of its own is named with its command: "run resume-plan".
void write_empty_members(json_writer& out, std::string_view command);

}  // namespace tool
