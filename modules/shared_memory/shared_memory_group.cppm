// SPDX-License-Identifier: Apache-2.0
// shared_memory_group: the memory over which processes become ranks. Not here: a rank of it
// (shared_memory_communicator), how its token reaches the processes (the program's).
export module shardmesh.shared_memory:shared_memory_group;

import shardmesh.std;
import shardmesh.comm;

namespace shardmesh::shared_memory {
class segment;
}

export namespace shardmesh {

struct shared_memory_options {
  /// Of the buffer from each rank to each other one. 0: 128 KiB, less for more than 16 ranks, so that all take 32 MiB.
  std::int64_t buffer_bytes = 0;
  /// Large messages are copied once, straight out of the sender's memory, where the system lets processes read each
  /// other's. False: always by way of the buffers.
  bool read_peer_memory = true;
};

/// A new group. One process makes it and tells the others its token, in any way: ranks join by it (the maker may be one
/// of them). The memory has no name in the file system, so that nothing is left behind however the processes end.
/// Move-only; may go once every rank has joined.
class shared_memory_group {
 public:
  /// \errors errc::invalid_argument: ranks outside 1 .. 1024, a buffer below 4 KiB or above 1 GiB; errc::io and
  ///         errc::no_memory with the system's errno: the memory cannot be had
  static result<shared_memory_group> make(std::int32_t ranks, const shared_memory_options& options = {});

  /// A line of text without blanks, good for processes of this machine (of this container, where there are such) and
  /// user, while this object lives.
  const std::string& token() const { return token_; }

 private:
  shared_memory_group(std::shared_ptr<shared_memory::segment> memory, std::string token)
      : memory_(std::move(memory)), token_(std::move(token)) {}
  std::shared_ptr<shared_memory::segment> memory_;
  std::string token_;
};

}  // namespace shardmesh
