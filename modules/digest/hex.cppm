// SPDX-License-Identifier: Apache-2.0
// hex_digits: formats bytes as hexadecimal digits.
export module shardmesh.digest:hex;

import shardmesh.std;

export namespace shardmesh {

/// Returns two lower-case digits per byte, the high half first.
std::string hex_digits(std::span<const std::byte> bytes);
/// Returns the digits of a text's bytes.
std::string hex_digits(std::string_view bytes);

}  // namespace shardmesh
