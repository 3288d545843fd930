// SPDX-License-Identifier: Apache-2.0
// What every handle begins with, so that one of another kind is an error.
#pragma once
#include <cstdint>

#include "border.hpp"

namespace c_api {

/// Kinds of handles, as they lie in memory: no small numbers, which other things begin with, too.
enum class handle_kind : std::uint64_t {
  checkpoint = 0x5ead'6e54'c0de'0001,
  save_report,
  verify_report,
  diff_report,
  layout,
  plan,
  mapped,
  loading,
};

/// The first member of a handle's struct.
template <handle_kind Kind>
struct marked {
  handle_kind kind = Kind;
  static constexpr handle_kind own_kind = Kind;
};

/// The handle, or invalid_argument when it is null or of another kind.
template <class Handle>
Handle& opened(Handle* handle, const char* name) {
  if (handle == nullptr) refuse_null(name);
  if (handle->mark.kind != Handle::mark_type::own_kind) refuse_argument(name, "is no such handle");
  return *handle;
}

}  // namespace c_api
