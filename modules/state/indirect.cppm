// SPDX-License-Identifier: Apache-2.0
// indirect: a value on the heap, so that a variant of large and small types stays small. Internal to the room.
export module shardmesh.state:indirect;

import shardmesh.std;

namespace shardmesh::detail {

/// Owns a Value; can be copied if `IsCopyable`. A moved-from indirect may only be assigned to or destroyed.
template <class Value, bool IsCopyable>
class indirect {
 public:
  explicit indirect(Value value) : held_(std::make_unique<Value>(std::move(value))) {}
  indirect(indirect&&) noexcept = default;
  indirect& operator=(indirect&&) noexcept = default;
  indirect(const indirect& other)
    requires IsCopyable
      : held_(std::make_unique<Value>(*other.held_)) {}
  indirect& operator=(const indirect& other)
    requires IsCopyable
  {
    held_ = std::make_unique<Value>(*other.held_);
    return *this;
  }
  ~indirect() = default;
  Value& operator*() { return *held_; }
  const Value& operator*() const { return *held_; }

 private:
  std::unique_ptr<Value> held_;
};

}  // namespace shardmesh::detail
