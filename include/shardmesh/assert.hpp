// SPDX-License-Identifier: Apache-2.0
// SHARDMESH_ASSERT checks preconditions; a broken one is a bug in the caller. Failures that a correct program can meet
// are `result`s. The macro does not depend on NDEBUG: a consumer that is built with other settings than the library
// would otherwise get different definitions of the inline members of interfaces.
#pragma once

namespace shardmesh::detail {
/// Prints the broken precondition to stderr and aborts.
[[noreturn]] void broken_precondition(const char* condition) noexcept;
}  // namespace shardmesh::detail

#define SHARDMESH_ASSERT(condition) \
  (static_cast<bool>(condition) ? static_cast<void>(0) : ::shardmesh::detail::broken_precondition(#condition))
