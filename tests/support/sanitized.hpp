// SPDX-License-Identifier: Apache-2.0
// Whether this is a build of a sanitizer that has an allocator and frames of its own: SHARDMESH_TEST_SANITIZED.
#pragma once
#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SHARDMESH_TEST_SANITIZED 1
#endif
#endif
