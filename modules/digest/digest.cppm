// SPDX-License-Identifier: Apache-2.0
// shardmesh.digest: checksums that identify descriptions and files (XXH3-128, CRC-32, SHA-1, and SHA-256), and the HMAC
// that signs requests: one wrapper per library. Rooms layout, storage, and remote decide which bytes are summed.
export module shardmesh.digest;

export import :crc32;
export import :digest128;
export import :hex;
export import :hmac;
export import :sha1;
export import :sha256;
export import :wipe;
export import :xxh3;
