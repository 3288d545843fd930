// SPDX-License-Identifier: Apache-2.0
module;
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <new>
#include <span>
#include <stdexcept>
module shardmesh.digest;

namespace shardmesh {

std::array<std::byte, 32> hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  if (key.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw std::length_error("hmac_sha256: the key exceeds 2 GiB");
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  // A null key has a meaning of its own in OpenSSL.
  const void* const key_data = key.empty() ? static_cast<const void*>("") : key.data();
  // OpenSSL fails here only when memory runs out.
  if (HMAC(EVP_sha256(), key_data, static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(message.data()),
           message.size(), digest.data(), &size) == nullptr)
    throw std::bad_alloc();
  std::array<std::byte, 32> made{};
  const auto bytes = std::as_bytes(std::span(digest));
  std::copy_n(bytes.begin(), made.size(), made.begin());
  return made;
}

}  // namespace shardmesh
