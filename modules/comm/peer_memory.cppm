// SPDX-License-Identifier: Apache-2.0
// peer_memory: reads the memory of another process on this machine and detects that the process is gone. The reader
// copies; the owner stays passive. The owner revokes its memory by changing a guard word, which the reader reads after
// the data. For communicators whose ranks are processes; not for users. Linux only: elsewhere no peer can be read.
export module shardmesh.comm:peer_memory;

import shardmesh.std;

export namespace shardmesh::detail {

/// The identity of a machine and its process namespace. Ranks with equal identities can address each other's processes.
struct machine_identity {
  char boot[40] = {};
  char process_space[40] = {};
  friend bool operator==(const machine_identity&, const machine_identity&) = default;
};
machine_identity this_machine();

enum class read_outcome { done, closed, refused };  // closed: the guard word changed, or the process is gone

/// A peer process whose memory can be read, with the address and expected value of its guard word.
class peer_memory {
 public:
  /// Makes a peer that cannot be read.
  peer_memory() = default;
  inline peer_memory(std::int64_t process, std::uint64_t guard_address, std::uint64_t guard)
      : process_(process), guard_address_(guard_address), guard_(guard) {}

  inline bool is_readable() const { return process_ > 0; }
  /// Copies the peer's bytes at `address`, then its guard word. Only the outcome `done` proves that the bytes are the
  /// peer's message.
  read_outcome read(std::uint64_t address, std::span<std::byte> to) const;
  /// Returns whether the peer is alive and its guard word is unchanged.
  inline bool is_open() const { return read(0, {}) == read_outcome::done; }

 private:
  std::int64_t process_ = 0;
  std::uint64_t guard_address_ = 0;
  std::uint64_t guard_ = 0;
};

}  // namespace shardmesh::detail
