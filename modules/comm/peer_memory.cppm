// SPDX-License-Identifier: Apache-2.0
// peer_memory: reading the memory of another process of this machine, and noticing that it has gone. The reader copies;
// the owner needs to do nothing and takes its memory back by changing a guard word that is read after the data. For
// models whose ranks are processes; not for users. Linux; elsewhere no peer can be read.
export module shardmesh.comm:peer_memory;

import shardmesh.std;

export namespace shardmesh::detail {

/// Two ranks with equal identities can name each other's processes.
struct machine_identity {
  char boot[40] = {};
  char process_space[40] = {};
  friend bool operator==(const machine_identity&, const machine_identity&) = default;
};
machine_identity this_machine();

enum class read_outcome { done, closed, refused };  // closed: the guard changed, or the process has gone

/// Where a peer's memory is.
class peer_memory {
 public:
  /// No peer, or one that cannot be read.
  peer_memory() = default;
  inline peer_memory(std::int64_t process, std::uint64_t guard_address, std::uint64_t guard)
      : process_(process), guard_address_(guard_address), guard_(guard) {}

  inline bool is_readable() const { return process_ > 0; }
  /// Copies the peer's bytes at `address`, then its guard word. Anything but `done`: they need not be the peer's
  /// message.
  read_outcome read(std::uint64_t address, std::span<std::byte> to) const;
  /// The peer lives, and its guard word still is what it was.
  inline bool is_open() const { return read(0, {}) == read_outcome::done; }

 private:
  std::int64_t process_ = 0;
  std::uint64_t guard_address_ = 0;
  std::uint64_t guard_ = 0;
};

}  // namespace shardmesh::detail
