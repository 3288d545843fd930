// SPDX-License-Identifier: Apache-2.0
// c10d_channel: sends bytes from rank to rank over a process group of LibTorch. It has none of LibTorch's types, so
// that only one plain file includes its headers. Tags, deadlines, and errors that reach every rank are in c10d_engine.
// All functions here throw LibTorch's exceptions, which derive from std::exception.
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

/// A message under way, with memory of its own. A backend never gets user memory, because it could not return it before
/// the peer arrives. Must be kept until `wait` has returned.
class transfer {
 public:
  virtual ~transfer() = default;
  virtual std::span<std::byte> bytes() = 0;
  /// Blocks without a limit. For a receive from any rank, returns the sender.
  virtual std::int32_t wait() = 0;
};

/// A process group. Its functions may be called from several threads at once.
class channel {
 public:
  /// Keeps the group alive. Throws std::invalid_argument if the group cannot move host memory.
  static std::shared_ptr<channel> of(c10d::ProcessGroup& group);
  static std::shared_ptr<channel> named(const std::string& name);
  virtual ~channel() = default;

  virtual std::int32_t rank() const = 0;
  virtual std::int32_t size() const = 0;
  /// The same on every rank of the group, and different for each group.
  virtual const std::string& name() const = 0;

  // Start a message and return. `tag` is below 2^31. Messages with the same peer and tag arrive in the order of
  // sending.
  virtual std::unique_ptr<transfer> send(std::span<const std::byte> copied, std::int32_t peer, std::int32_t tag) = 0;
  virtual std::unique_ptr<transfer> receive(std::size_t size, std::int32_t peer, std::int32_t tag) = 0;
  virtual std::unique_ptr<transfer> receive_from_any(std::size_t size, std::int32_t tag) = 0;
};

}  // namespace shardmesh::c10d_detail
