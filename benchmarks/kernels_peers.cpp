// SPDX-License-Identifier: Apache-2.0
#include "kernels_peers.hpp"

#include <Kokkos_Core.hpp>
#include <cstring>

namespace peers {

using host = Kokkos::DefaultHostExecutionSpace;

void stream_copy(std::byte* to, const std::byte* from, std::int64_t bytes) {
  auto* const a = reinterpret_cast<double*>(to);
  const auto* const b = reinterpret_cast<const double*>(from);
  Kokkos::parallel_for("stream", Kokkos::RangePolicy<host>(0, bytes / 8), [=](std::int64_t i) { a[i] = b[i]; });
  host().fence();
  std::memcpy(to + bytes / 8 * 8, from + bytes / 8 * 8, static_cast<std::size_t>(bytes % 8));
}

namespace {

template <class T>
Kokkos::LayoutStride layout_of(const T& v) {
  const auto size = [&](std::size_t d) { return static_cast<std::size_t>(v.sizes[d]); };
  const auto step = [&](std::size_t d) { return static_cast<std::size_t>(v.strides[d]); };
  if (v.sizes.rank() == 2) return Kokkos::LayoutStride(size(0), step(0), size(1), step(1));
  if (v.sizes.rank() == 3) return Kokkos::LayoutStride(size(0), step(0), size(1), step(1), size(2), step(2));
  return Kokkos::LayoutStride(size(0), step(0), size(1), step(1), size(2), step(2), size(3), step(3));
}
template <class Data>
void copy_as(const shardmesh::tensor_view& to, const shardmesh::const_tensor_view& from) {
  using view = Kokkos::View<Data, Kokkos::LayoutStride, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  view a(reinterpret_cast<float*>(to.data), layout_of(to));
  view b(const_cast<float*>(reinterpret_cast<const float*>(from.data)), layout_of(from));
  Kokkos::deep_copy(host(), a, b);
  host().fence();
}

}  // namespace

bool deep_copy(const shardmesh::tensor_view& to, const shardmesh::const_tensor_view& from) {
  if (to.type != shardmesh::dtype::float32 || from.type != shardmesh::dtype::float32) return false;
  if (to.sizes.rank() == 2) return copy_as<float**>(to, from), true;
  if (to.sizes.rank() == 3) return copy_as<float***>(to, from), true;
  if (to.sizes.rank() == 4) return copy_as<float****>(to, from), true;
  return false;
}

void empty_launch() {
  Kokkos::parallel_for("shardmesh_tiles", Kokkos::RangePolicy<host>(0, host().concurrency()), [](int) {});
  host().fence("shardmesh_tiles");
}

}  // namespace peers
