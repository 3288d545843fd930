// SPDX-License-Identifier: Apache-2.0
module;
#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <string>
module shardmesh.digest;

namespace shardmesh {

struct sha256::state {
  struct free_context {
    void operator()(EVP_MD_CTX* made) const { EVP_MD_CTX_free(made); }
  };
  std::unique_ptr<EVP_MD_CTX, free_context> context{EVP_MD_CTX_new()};
};

sha256::sha256() : state_(std::make_unique<state>()) {
  // OpenSSL fails here only when memory runs out.
  if (!state_->context || EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
}
sha256::sha256(sha256&&) noexcept = default;
sha256& sha256::operator=(sha256&&) noexcept = default;
sha256::~sha256() = default;

void sha256::update(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size());
}

std::string sha256::finish_hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_DigestFinal_ex(state_->context.get(), digest.data(), &size);
  return hex_digits(std::as_bytes(std::span(digest).first(size)));
}

std::string sha256::hex_of(std::span<const std::byte> bytes) {
  sha256 running;
  running.update(bytes);
  return running.finish_hex();
}

}  // namespace shardmesh
