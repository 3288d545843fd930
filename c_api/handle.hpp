// SPDX-License-Identifier: Apache-2.0
// The first member of every handle, which detects handles of the wrong kind.
#pragma once
#include <cstdint>

#include "border.hpp"

namespace c_api {

/// Kinds of handles, as stored in memory. The values are large, because other structs may begin with small numbers.
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

/// Returns the handle; throws invalid_argument if it is null or of another kind.
template <class Handle>
Handle& opened(Handle* handle, const char* name) {
  if (handle == nullptr) refuse_null(name);
  if (handle->mark.kind != Handle::mark_type::own_kind) refuse_argument(name, "is not a valid handle of this kind");
  return *handle;
}

}  // namespace c_api
