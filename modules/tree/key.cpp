// SPDX-License-Identifier: Apache-2.0
module;
#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <string_view>
module shardmesh.tree;

namespace shardmesh {

path_key path_key::of_integer(std::int64_t value) {
  const std::string digits = std::to_string(value);
  path_key made{std::string_view(digits)};
  if (digits.size() <= longest_inside) made.size_ |= is_a_number;
  return made;
}

path_key path_key::of_python(std::string_view text, std::string_view pickled) {
  const std::uint64_t size = text.size();
  std::string whole(sizeof size, '\0');
  std::memcpy(whole.data(), &size, sizeof size);
  (whole += text) += pickled;
  const shared_text* const shared = share(whole);  // before `made` is marked as shared: allocation may fail
  path_key made(std::string_view{});
  made.size_ = is_pickled;
  made.store(shared);
  return made;
}

std::string_view path_key::whole_text() const noexcept {
  return shared_name(load<const shared_text*>());
}

std::string_view path_key::python_name() const noexcept {
  const std::string_view whole = whole_text();
  std::uint64_t size = 0;
  std::memcpy(&size, whole.data(), sizeof size);
  return whole.substr(sizeof size, size);
}

std::string_view path_key::pickled() const noexcept {
  return whole_text().substr(sizeof(std::uint64_t) + python_name().size());
}

std::int64_t path_key::integer() const noexcept {
  const std::string_view digits = name();
  std::int64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

std::string key_text(const path_key& key) {
  return key.is_index() ? std::to_string(key.index()) : std::string(key.name());
}

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
