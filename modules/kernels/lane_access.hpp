// SPDX-License-Identifier: Apache-2.0
// Loads and stores of values at any address. Private to this room.
#pragma once
#include <cstddef>
#include <cstring>

namespace shardmesh::lanes {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace shardmesh::lanes
