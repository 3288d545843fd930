// SPDX-License-Identifier: Apache-2.0
// SHARDMESH_TRY: returns the error of a `result` from the enclosing function, or continues with its value. A macro,
// because no function can return from its caller. Include it before `import shardmesh;`.
#pragma once
#include <utility>

/// `SHARDMESH_TRY(const auto x, f());` declares `x` with the value of f's result, or returns its error.
/// `SHARDMESH_TRY(f());` returns the error, or ignores the value.
/// The enclosing function returns a `result` of any type. An expression with a comma outside of parentheses and braces
/// of its own (`f<a, b>()`) needs parentheses around it in the form of one argument.
#define SHARDMESH_TRY(first, ...)                      \
  SHARDMESH_TRY_CAT(SHARDMESH_TRY_, __VA_OPT__(VALUE)) \
  (SHARDMESH_TRY_CAT(shardmesh_try_, __COUNTER__), first __VA_OPT__(, ) __VA_ARGS__)

#define SHARDMESH_TRY_CAT_(a, b) a##b
#define SHARDMESH_TRY_CAT(a, b) SHARDMESH_TRY_CAT_(a, b)
#define SHARDMESH_TRY_VALUE(slot, declaration, ...) \
  auto&& slot = (__VA_ARGS__);                      \
  if (!slot) return std::move(slot).error();        \
  declaration = *std::move(slot)
#define SHARDMESH_TRY_(slot, ...)              \
  do {                                         \
    auto&& slot = (__VA_ARGS__);               \
    if (!slot) return std::move(slot).error(); \
  } while (false)
