// SPDX-License-Identifier: Apache-2.0
// Shared by the MPI tests: a communicator per test case, deadlines, and bytes that encode their origin.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// MPI_Comm_c2f(MPI_COMM_WORLD). Each test makes its own communicator from it, so that poisoning one does not spread.
std::int32_t world_handle();

/// Byte `at` of message number `number` from one rank to another.
inline std::byte message_byte(int from, int to, std::uint32_t number, std::size_t at) {
  std::uint64_t mixed = static_cast<std::uint64_t>(from) * 1000003 + static_cast<std::uint64_t>(to) * 10007 + number;
  mixed = (mixed + at / 8 * 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
  return static_cast<std::byte>(mixed >> (8 * (at % 8)));
}

inline std::vector<std::byte> message_bytes(int from, int to, std::uint32_t number, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = message_byte(from, to, number, i);
  return bytes;
}

inline std::chrono::steady_clock::time_point in_seconds(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}
