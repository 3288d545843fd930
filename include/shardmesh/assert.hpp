// SPDX-License-Identifier: Apache-2.0
// SHARDMESH_ASSERT: broken preconditions, which are bugs of the caller. What a good program can meet is a `result`.
#pragma once
#include <cassert>
#define SHARDMESH_ASSERT(condition) assert(condition)
