// SPDX-License-Identifier: Apache-2.0
// One `operator<<` for every type of this library that has a `to_string`, instead of one per type.
export module shardmesh.core:print;

import shardmesh.std;
import :box;
import :device;
import :error;
import :extents;

export namespace shardmesh {

/// A type with a `to_string(value)` that argument-dependent look-up finds.
template <class T>
concept printable = requires(const T& value) {
  { to_string(value) } -> std::convertible_to<std::string_view>;
};

/// Prints `to_string(value)`. Argument-dependent look-up finds this operator for the library's types.
template <printable T>
std::ostream& operator<<(std::ostream& out, const T& value) {
  return out << std::string_view(to_string(value));
}

}  // namespace shardmesh
