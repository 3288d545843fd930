// SPDX-License-Identifier: Apache-2.0
// SHA-256 in the form of the golden files: lower-case hexadecimal.
#pragma once
#include <openssl/sha.h>

#include <cstddef>
#include <span>
#include <string>

namespace test {

inline std::string sha256(std::span<const std::byte> bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  std::string text;
  for (const unsigned char byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace test
