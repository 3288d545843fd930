// SPDX-License-Identifier: Apache-2.0
module;
#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <new>
#include <string_view>
module shardmesh.tree;

namespace shardmesh {

path_key::shared_text* path_key::share(std::string_view name) {
  void* memory = ::operator new(sizeof(shared_text) + name.size());
  auto* text = new (memory) shared_text{{1}, name.size()};
  std::memcpy(static_cast<void*>(text + 1), name.data(), name.size());
  return text;
}

std::string_view path_key::shared_name(const shared_text* text) noexcept {
  return {static_cast<const char*>(static_cast<const void*>(text + 1)), text->size};
}

void path_key::free(shared_text* text) noexcept {
  text->~shared_text();
  ::operator delete(text);
}

std::size_t path_key::hash_text(std::string_view text) noexcept {
  return std::hash<std::string_view>{}(text);
}

}  // namespace shardmesh
