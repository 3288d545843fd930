// SPDX-License-Identifier: Apache-2.0
// Defines SHARDMESH_TEST_SANITIZED in builds with a sanitizer that has its own allocator and stack frames.
#pragma once
#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SHARDMESH_TEST_SANITIZED 1
#endif
#endif
