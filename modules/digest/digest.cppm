// SPDX-License-Identifier: Apache-2.0
// shardmesh.digest: the sums of bytes that descriptions and files are known by: XXH3-128, CRC-32, SHA-256; one wrapper
// of each library. Not here: what is summed (layout, storage).
export module shardmesh.digest;

export import :crc32;
export import :digest128;
export import :hex;
export import :sha256;
export import :xxh3;
