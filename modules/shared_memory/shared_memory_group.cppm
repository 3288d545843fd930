// SPDX-License-Identifier: Apache-2.0
// shared_memory_group: the shared memory through which processes become ranks. A rank of the group is in
// shared_memory_communicator; the program itself sends the token to the processes.
export module shardmesh.shared_memory:shared_memory_group;

import shardmesh.std;
import shardmesh.comm;

namespace shardmesh::shared_memory {
class segment;
}

export namespace shardmesh {

struct shared_memory_options {
  /// Bytes of the buffer from each rank to each other rank. 0 means 128 KiB for up to 16 ranks; for more, less (but at
  /// least 4 KiB), so that all buffers together take 32 MiB.
  std::int64_t buffer_bytes = 0;
  /// Whether large messages are copied once, directly from the sender's memory, where the system lets processes read
  /// each other's memory. False: all messages go through the buffers.
  bool read_peer_memory = true;
};

/// A group whose ranks are processes on one machine. One process makes it and passes its token to the others by any
/// means; each rank joins with the token. The maker may be a rank itself. The memory has no name in the file system, so
/// nothing is left behind however the processes end. Move-only; may be destroyed once every rank has joined.
class shared_memory_group {
 public:
  /// Makes a group of `ranks` ranks.
  /// \errors errc::invalid_argument: ranks outside 1 .. 1024, a buffer below 4 KiB or above 1 GiB; errc::io and
  ///         errc::no_memory with the system's errno: the memory cannot be allocated
  static result<shared_memory_group> make(std::int32_t ranks, const shared_memory_options& options = {});

  /// Returns the token, a line of text without blanks. It is valid while this object lives, for processes of the same
  /// machine, container, and user.
  const std::string& token() const { return token_; }

 private:
  shared_memory_group(std::shared_ptr<shared_memory::segment> memory, std::string token)
      : memory_(std::move(memory)), token_(std::move(token)) {}
  std::shared_ptr<shared_memory::segment> memory_;
  std::string token_;
};

}  // namespace shardmesh
