// SPDX-License-Identifier: Apache-2.0
module;
#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
module shardmesh.digest;

namespace shardmesh {

std::string sha1_hex(std::span<const std::byte> bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  // Besides memory, a policy of the machine (FIPS) can lack SHA-1.
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha1(), nullptr) != 1)
    throw std::runtime_error("sha1_hex: OpenSSL refuses SHA-1");
  return hex_digits(std::as_bytes(std::span(digest).first(size)));
}

}  // namespace shardmesh
