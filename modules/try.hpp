// SPDX-License-Identifier: Apache-2.0
// SHARDMESH_TRY: early return of an error. Only .cpp files include it; never installed.
#pragma once

#define SHARDMESH_CAT_(a, b) a##b
#define SHARDMESH_CAT(a, b) SHARDMESH_CAT_(a, b)
#define SHARDMESH_TRY_(slot, declaration, ...) \
  auto&& slot = (__VA_ARGS__);                 \
  if (!slot) return std::move(slot).error();   \
  declaration = *std::move(slot)

/// `SHARDMESH_TRY(auto x, f());` means `auto x = *f()`, but returns f's error if there is one.
#define SHARDMESH_TRY(declaration, ...) SHARDMESH_TRY_(SHARDMESH_CAT(try_slot_, __LINE__), declaration, __VA_ARGS__)

/// Returns the error of a `result<void>` if there is one.
#define SHARDMESH_CHECK(...)                           \
  do {                                                 \
    auto&& try_slot = (__VA_ARGS__);                   \
    if (!try_slot) return std::move(try_slot).error(); \
  } while (false)
