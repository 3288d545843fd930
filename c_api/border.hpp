// SPDX-License-Identifier: Apache-2.0
// The border: every exported function does its work in `guarded`, which lets no exception out. Code inside reports
// failures by throwing.
#pragma once
#include <shardmesh/c_api/error.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

import shardmesh;

namespace c_api {

/// Thrown when a call cannot do what was requested: at least one problem.
struct refusal {
  std::vector<shardmesh::error> problems;
};

/// Throws a problem, with the others that it carries. Work that may be stopped throws inside the watched call, which
/// knows the reason for a stop.
[[noreturn]] void refuse(const shardmesh::error& problem);
/// Throws invalid_argument with the text "argument NAME WHY".
[[noreturn]] void refuse_argument(std::string_view name, std::string_view why);
[[noreturn]] void refuse_null(std::string_view name);
/// For a non-zero field of options or elements that this library does not know: a later version may have given it a
/// meaning.
[[noreturn]] void refuse_unknown_field(std::string_view name);

/// Returns the value, or throws a `refusal`.
template <class T>
  requires std::is_object_v<T>
T value_of(shardmesh::result<T> made) {
  if (!made) refuse(made.error());
  return *std::move(made);
}
inline void check(const shardmesh::result<void>& done) {
  if (!done) refuse(done.error());
}

/// Returns an argument that must not be null.
template <class T>
T& needed(T* argument, std::string_view name) {
  if (argument == nullptr) refuse_null(name);
  return *argument;
}

/// Returns the status of the exception being handled; stores the error in `error` unless that is null.
shardmesh_status report_exception(shardmesh_error** error) noexcept;

/// Runs the work of an exported function.
template <class Work>
shardmesh_status guarded(shardmesh_error** error, Work&& work) noexcept {
  if (error != nullptr) *error = nullptr;
  try {
    std::forward<Work>(work)();
    return SHARDMESH_OK;
  } catch (...) {
    return report_exception(error);
  }
}

/// The same for work that makes a handle: `made` is null unless the work succeeds.
template <class Handle, class Work>
shardmesh_status guarded(shardmesh_error** error, Handle** made, Work&& work) noexcept {
  if (made != nullptr) *made = nullptr;
  return guarded(error, [&] {
    Handle*& to = needed(made, "for the result");
    to = std::forward<Work>(work)().release();
  });
}

/// Returns the caller's options, whatever version of the header they come from; default ones for null. Fields that this
/// library does not know must be 0; fields that an older header lacks become 0. `first_size` is the size in the first
/// version.
template <class Options>
Options given(const Options* options, std::string_view name, std::size_t first_size = sizeof(Options)) {
  Options made{};
  if (options == nullptr) return made;
  std::size_t size = 0;
  std::memcpy(&size, options, sizeof size);
  if (size < first_size) refuse_argument(name, "has no struct_size, or one that is too small");
  if (size > (std::size_t{1} << 16)) refuse_argument(name, "has a struct_size that is too large for any version");
  const auto* bytes = reinterpret_cast<const unsigned char*>(options);
  for (std::size_t i = sizeof made; i < size; ++i)
    if (bytes[i] != 0) refuse_unknown_field(name);
  std::memcpy(&made, options, std::min(size, sizeof made));
  if constexpr (requires { made.reserved; })
    if (made.reserved != 0) refuse_unknown_field(name);
  return made;
}

/// Fills the caller's description, as far as the caller's header knows it. Fields that this library does not know
/// become 0. `first_size` is the size in the first version.
template <class Description>
void give(Description* to, const Description& made, std::string_view name,
          std::size_t first_size = sizeof(Description)) {
  std::size_t size = 0;
  std::memcpy(&size, &needed(to, name), sizeof size);
  if (size < first_size) refuse_argument(name, "has no struct_size, or one that is too small");
  if (size > (std::size_t{1} << 16)) refuse_argument(name, "has a struct_size that is too large for any version");
  const std::size_t known = std::min(size, sizeof made);
  auto* const bytes = reinterpret_cast<unsigned char*>(to);
  std::memcpy(bytes, &made, known);
  std::memset(bytes + known, 0, size - known);
  std::memcpy(bytes, &size, sizeof size);
}

/// Throws out_of_bounds if `index` is not below `count`.
void check_index(std::size_t index, std::size_t count, std::string_view what);

}  // namespace c_api
