// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.remote;

namespace shardmesh::remote {

secret::secret(std::string_view text) : size_(text.size()) {
  if (text.empty()) return;
  text_ = std::make_unique<char[]>(text.size());
  std::memcpy(text_.get(), text.data(), text.size());
}

secret::secret(const secret& other) : secret(other.reveal()) {}

secret::secret(secret&& other) noexcept
    : text_(std::move(other.text_)), size_(std::exchange(other.size_, std::size_t{0})) {}

secret& secret::operator=(const secret& other) {
  return *this = secret(other);
}

secret& secret::operator=(secret&& other) noexcept {
  if (this == &other) return *this;
  wipe();
  text_ = std::move(other.text_);
  size_ = std::exchange(other.size_, std::size_t{0});
  return *this;
}

secret::~secret() {
  wipe();
}

void secret::wipe() noexcept {
  wipe_memory(std::as_writable_bytes(std::span(text_.get(), size_)));
  text_.reset();
  size_ = 0;
}

std::string to_string(const secret& hidden) {
  return hidden.empty() ? "" : "***";
}

void wipe(std::string& text) noexcept {
  wipe_memory(std::as_writable_bytes(std::span(text.data(), text.size())));
  text.clear();
}

}  // namespace shardmesh::remote
