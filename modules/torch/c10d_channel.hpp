// SPDX-License-Identifier: Apache-2.0
// c10d_channel: bytes from rank to rank over a process group of LibTorch, with none of its types, so that one plain
// file includes its headers. Not here: tags of our own, deadlines, errors that reach every rank (engine). Everything
// here throws what LibTorch throws, which derives from std::exception.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace c10d {
class ProcessGroup;
}

namespace shardmesh::c10d_detail {

/// A message under way, with memory of its own: user memory is never given to a backend, which could not give it back
/// before the peer comes. Kept until `wait` has returned.
class transfer {
 public:
  virtual ~transfer() = default;
  virtual std::span<std::byte> bytes() = 0;
  /// Blocks, without a limit of its own. Of a receive, the rank that sent.
  virtual std::int32_t wait() = 0;
};

/// A process group. Its functions may be called from several threads at once.
class channel {
 public:
  /// The group is kept alive. std::invalid_argument when it moves no host memory.
  static std::shared_ptr<channel> of(c10d::ProcessGroup& group);
  static std::shared_ptr<channel> named(const std::string& name);
  virtual ~channel() = default;

  virtual std::int32_t rank() const = 0;
  virtual std::int32_t size() const = 0;
  /// The same on every rank of the group, and another for each group.
  virtual const std::string& name() const = 0;

  // Start a message and return. `tag` is below 2^31; messages of a peer and tag come in the order of sending.
  virtual std::unique_ptr<transfer> send(std::span<const std::byte> copied, std::int32_t peer, std::int32_t tag) = 0;
  virtual std::unique_ptr<transfer> receive(std::size_t size, std::int32_t peer, std::int32_t tag) = 0;
  virtual std::unique_ptr<transfer> receive_from_any(std::size_t size, std::int32_t tag) = 0;
};

}  // namespace shardmesh::c10d_detail
