// SPDX-License-Identifier: Apache-2.0
// SHARDMESH_ASSERT: broken preconditions, which are bugs of the caller. What a good program can meet is a `result`.
// Inline members of interfaces use it, so it does not depend on NDEBUG: a consumer that is built otherwise than the
// library would have other definitions of them. What only bodies assert is `assert` of <cassert>.
#pragma once

namespace shardmesh::detail {
/// Says on stderr which precondition is broken, and aborts.
[[noreturn]] void broken_precondition(const char* condition) noexcept;
}  // namespace shardmesh::detail

#define SHARDMESH_ASSERT(condition) \
  (static_cast<bool>(condition) ? static_cast<void>(0) : ::shardmesh::detail::broken_precondition(#condition))
