// SPDX-License-Identifier: Apache-2.0
// dtensor<T>: a tensor laid out over a mesh, and this rank's part of it. Layouts are in room layout; moving a dtensor
// to another layout is in redistribute.
module;
#include <shardmesh/assert.hpp>
#include <shardmesh/refuse.hpp>
export module shardmesh.sharding:dtensor;

import shardmesh.std;
import shardmesh.transfer;
import :shard_moves;

namespace shardmesh::detail {
result<void> check_member(const layout& l, std::int32_t rank);
result<void> check_local_tensor(const layout& l, std::int32_t rank, const extents* local_sizes);
}  // namespace shardmesh::detail

export namespace shardmesh {

/// A tensor laid out over a mesh. A rank outside the mesh holds nothing.
/// Source: torch.distributed.tensor.DTensor.
template <local_tensor T>
class dtensor {
 public:
  using tensor_type = T;

  /// Makes a rank's dtensor from its local tensor.
  /// \param rank   this process, in the numbering of the mesh
  /// \param local  this rank's part, with sizes `l.local_shape(rank)`; empty when the rank is not in the mesh
  /// \errors errc::shape_mismatch naming the rank and the expected and found sizes; errc::invalid_argument when a rank
  ///         of the mesh has no tensor, or a rank outside the mesh has one; those of the adapter's `check`
  static result<dtensor> make(layout l, std::int32_t rank, std::optional<T> local) {
    extents sizes;
    if (local) {
      if (auto plain = check_tensor(*local); !plain) return std::move(plain).error().with_rank(rank);
      sizes = adapter<T>::view(*local).sizes;
    }
    if (auto valid = detail::check_local_tensor(l, rank, local ? &sizes : nullptr); !valid)
      return std::move(valid).error();
    return dtensor(std::move(l), rank, std::move(local));
  }

  /// Allocates a rank's part as uninitialised memory.
  /// \param rank   this process, in the numbering of the mesh
  /// \param where  the device that is passed to `adapter<T>::allocate`
  /// \errors errc::invalid_argument when the rank is not in the mesh, naming both (use `make` for a rank that holds
  ///         nothing); errc::no_memory and other errors that `allocate` throws, naming the sizes
  static result<dtensor> allocate(shardmesh::layout l, std::int32_t rank, dtype type, device where = {})
    requires allocatable_tensor<T>
  {
    if (auto member = detail::check_member(l, rank); !member) return std::move(member).error();
    auto local = detail::allocated<T>(type, l.local_shape(rank), where);
    if (!local) return std::move(local).error().with_rank(rank);
    return make(std::move(l), rank, *std::move(local));
  }

  dtensor(dtensor&&) noexcept = default;
  dtensor& operator=(dtensor&&) noexcept = default;
  dtensor(const dtensor&)
    requires std::copy_constructible<T>
  = default;
  dtensor& operator=(const dtensor&)
    requires std::copy_constructible<T>
  = default;
  dtensor(const dtensor&)
    requires(!std::copy_constructible<T>)
  = SHARDMESH_REFUSE("a dtensor copies only when its tensor type does, and this one does not: std::move it");
  dtensor& operator=(const dtensor&)
    requires(!std::copy_constructible<T>)
  = SHARDMESH_REFUSE("a dtensor copies only when its tensor type does, and this one does not: std::move it");
  ~dtensor() = default;

  const shardmesh::layout& layout() const { return layout_; }
  const extents& size() const { return layout_.shape(); }
  std::int32_t rank() const { return rank_; }
  bool has_local() const { return local_.has_value(); }
  /// Precondition: has_local().
  T& local() { return SHARDMESH_ASSERT(local_), *local_; }
  const T& local() const { return SHARDMESH_ASSERT(local_), *local_; }

 private:
  dtensor(shardmesh::layout l, std::int32_t rank, std::optional<T> local)
      : layout_(std::move(l)), rank_(rank), local_(std::move(local)) {}
  shardmesh::layout layout_;
  std::int32_t rank_ = 0;
  std::optional<T> local_;
};

/// Returns the distribution over the ranks of the mesh, with exact boxes for every placement list.
/// \errors those of `distribute`
template <local_tensor T>
result<distribution> distribution_of(const dtensor<T>& tensor) {
  return distribute(tensor.layout());
}

}  // namespace shardmesh
