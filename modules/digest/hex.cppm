// SPDX-License-Identifier: Apache-2.0
// hex_digits: bytes as hexadecimal digits.
export module shardmesh.digest:hex;

import shardmesh.std;

export namespace shardmesh {

/// Two lower-case digits a byte, the high half first.
std::string hex_digits(std::span<const std::byte> bytes);
/// Of the bytes of a text.
std::string hex_digits(std::string_view bytes);

}  // namespace shardmesh
