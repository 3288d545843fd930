// SPDX-License-Identifier: Apache-2.0
// operator<< for everything in this library that has a spelling: one place instead of one operator per type.
export module shardmesh.core:print;

import shardmesh.std;
import :box;
import :device;
import :error;
import :extents;

export namespace shardmesh {

/// A type with a spelling: `to_string(value)`, found beside the type.
template <class T>
concept printable = requires(const T& value) {
  { to_string(value) } -> std::convertible_to<std::string_view>;
};

/// Prints the spelling. Found for this library's types by argument-dependent look-up.
template <printable T>
std::ostream& operator<<(std::ostream& out, const T& value) {
  return out << std::string_view(to_string(value));
}

}  // namespace shardmesh
