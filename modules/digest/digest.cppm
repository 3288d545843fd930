// SPDX-License-Identifier: Apache-2.0
// shardmesh.digest: checksums that identify descriptions and files: XXH3-128, CRC-32, and SHA-256, one wrapper per
// library. Rooms layout and storage decide which bytes are summed.
export module shardmesh.digest;

export import :crc32;
export import :digest128;
export import :hex;
export import :sha256;
export import :xxh3;
