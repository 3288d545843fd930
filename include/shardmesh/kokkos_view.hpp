// SPDX-License-Identifier: Apache-2.0
// A Kokkos::View as a tensor of shardmesh: specialises `adapter<T>` without any `import`. Room `kokkos` starts Kokkos
// and provides the backend for its memory.
//
// A file that includes Kokkos is compiled with Kokkos's flags (OpenMP's, nvcc's), and a file that imports a module is
// compiled with the module's flags. If they differ, the Kokkos file passes `adapter<View>::view(v)` to a file that
// imports. Both see the same `tensor_view`.
#pragma once
#include <shardmesh/adapter.hpp>

#include <Kokkos_Complex.hpp>
#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace shardmesh {

/// The dtype of a C++ element type; undefined if there is none. Specialise it for float16 or bfloat16 types:
///     template <> inline constexpr dtype kokkos_dtype<Kokkos::Experimental::bhalf_t> = dtype::bfloat16;
template <class T>
inline constexpr dtype kokkos_dtype = std::is_same_v<T, bool>     ? dtype::boolean
                                      : std::is_same_v<T, float>  ? dtype::float32
                                      : std::is_same_v<T, double> ? dtype::float64
                                      : !std::is_integral_v<T>    ? dtype::undefined
                                      : std::is_signed_v<T>       ? (sizeof(T) == 1   ? dtype::int8
                                                                     : sizeof(T) == 2 ? dtype::int16
                                                                     : sizeof(T) == 4 ? dtype::int32
                                                                     : sizeof(T) == 8 ? dtype::int64
                                                                                      : dtype::undefined)
                                                                  : (sizeof(T) == 1   ? dtype::uint8
                                                                     : sizeof(T) == 2 ? dtype::uint16
                                                                     : sizeof(T) == 4 ? dtype::uint32
                                                                     : sizeof(T) == 8 ? dtype::uint64
                                                                                      : dtype::undefined);
template <>
inline constexpr dtype kokkos_dtype<Kokkos::complex<float>> = dtype::complex64;
template <>
inline constexpr dtype kokkos_dtype<Kokkos::complex<double>> = dtype::complex128;

/// True when the View's layout has strides: LayoutLeft, LayoutRight, or LayoutStride.
template <class Layout>
inline constexpr bool is_strided_kokkos_layout =
    std::is_same_v<Layout, Kokkos::LayoutLeft> || std::is_same_v<Layout, Kokkos::LayoutRight> ||
    std::is_same_v<Layout, Kokkos::LayoutStride>;

/// The device of a Kokkos memory space. Memory that host and device share counts as the host's.
template <class Space>
device kokkos_device() {
  if constexpr (Kokkos::SpaceAccessibility<Kokkos::HostSpace, Space>::accessible) {
    return {};
  } else {
    device where{device_type::other, static_cast<std::int16_t>(Kokkos::device_id())};
#if defined(KOKKOS_ENABLE_CUDA)
    if constexpr (std::is_same_v<typename Space::execution_space, Kokkos::Cuda>) where.type = device_type::cuda;
#endif
#if defined(KOKKOS_ENABLE_HIP)
    if constexpr (std::is_same_v<typename Space::execution_space, Kokkos::HIP>) where.type = device_type::hip;
#endif
    return where;
  }
}

/// Views of ranks 0 to 8. A View is a handle: only the constness of its element type matters, not its own. A View of
/// const elements is only read.
template <class DataType, class... Properties>
struct adapter<Kokkos::View<DataType, Properties...>> {
  using view_type = Kokkos::View<DataType, Properties...>;
  using element = typename view_type::non_const_value_type;
  static constexpr bool is_const = std::is_const_v<typename view_type::value_type>;
  static_assert(kokkos_dtype<element> != dtype::undefined,
                "the elements of this Kokkos::View have no dtype: specialise shardmesh::kokkos_dtype for them");
  static_assert(is_strided_kokkos_layout<typename view_type::array_layout>,
                "a Kokkos::View is a tensor with the layouts Left, Right and Stride");

  static std::conditional_t<is_const, const_tensor_view, tensor_view> view(const view_type& v) {
    using bytes = std::conditional_t<is_const, const std::byte, std::byte>;
    std::conditional_t<is_const, const_tensor_view, tensor_view> made;
    made.data = reinterpret_cast<bytes*>(v.data());
    made.type = kokkos_dtype<element>;
    made.where = kokkos_device<typename view_type::memory_space>();
    for (std::size_t d = 0; d < view_type::rank(); ++d) {
      made.sizes.push_back(static_cast<std::int64_t>(v.extent(d)));
      made.strides.push_back(static_cast<std::int64_t>(v.stride(d)));
    }
    return made;
  }

  /// Returns a contiguous View of new, uninitialised memory; for functions that return new tensors.
  static view_type allocate(dtype, const extents& sizes, device)
    requires(!is_const && !std::is_same_v<typename view_type::array_layout, Kokkos::LayoutStride> &&
             view_type::rank_dynamic == view_type::rank && !view_type::memory_traits::is_unmanaged)
  {
    typename view_type::array_layout layout;
    for (std::size_t d = 0; d < view_type::rank(); ++d) layout.dimension[d] = static_cast<std::size_t>(sizes[d]);
    return view_type(Kokkos::view_alloc(std::string("shardmesh"), Kokkos::WithoutInitializing), layout);
  }
};

}  // namespace shardmesh
