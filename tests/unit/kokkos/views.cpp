// SPDX-License-Identifier: Apache-2.0
// The bodies of views.hpp: plain code, compiled with Kokkos's flags and without imports.
#include "views.hpp"

#include <shardmesh/kokkos_view.hpp>

#include <Kokkos_Core.hpp>
#include <array>
#include <cstddef>
#include <random>
#include <type_traits>
#include <utility>

using namespace shardmesh;

namespace views {
namespace {

template <class View, std::size_t... I>
auto& element(const View& v, const extents& index, std::index_sequence<I...>) {
  return v(static_cast<std::size_t>(index[I])...);
}
template <class View>
auto& element(const View& v, const extents& index) {
  return element(v, index, std::make_index_sequence<View::rank()>{});
}

template <class View>
void offer(const std::string& name, const View& v, const std::function<void(const made_view&)>& use) {
  extents index = extents::filled(View::rank(), 0);
  bool empty = false;
  for (std::size_t d = 0; d < View::rank(); ++d) empty = empty || v.extent(d) == 0;
  for (std::int64_t number = 0; !empty; ++number) {
    element(v, index) = static_cast<typename View::value_type>(number % 97);
    std::size_t d = View::rank();
    while (d > 0 && ++index[d - 1] == static_cast<std::int64_t>(v.extent(d - 1))) index[--d] = 0;
    if (d == 0) break;
  }
  use({name, adapter<View>::view(v), [v](const extents& at) { return static_cast<long double>(element(v, at)); }});
}

template <class T, std::size_t Rank>
struct data_of {
  using type = typename data_of<T, Rank - 1>::type*;
};
template <class T>
struct data_of<T, 0> {
  using type = T;
};

template <class T, std::size_t Rank, class Layout>
void offer_rank(const std::string& name, std::mt19937_64& random, const std::function<void(const made_view&)>& use) {
  using view = Kokkos::View<typename data_of<T, Rank>::type, Layout, Kokkos::HostSpace>;
  Layout layout;
  for (std::size_t d = 0; d < Rank; ++d) layout.dimension[d] = Rank > 4 ? 1 + random() % 3 : random() % 8;
  offer(name + " of rank " + std::to_string(Rank), view("view", layout), use);
}

template <class T, class Layout, std::size_t... Rank>
void offer_ranks(const std::string& name, std::mt19937_64& random, const std::function<void(const made_view&)>& use,
                 std::index_sequence<Rank...>) {
  (offer_rank<T, Rank, Layout>(name, random, use), ...);
}

}  // namespace

void for_each_view(std::uint64_t seed, const std::function<void(const made_view&)>& use) {
  std::mt19937_64 random(seed);
  constexpr std::make_index_sequence<9> ranks;
  offer_ranks<float, Kokkos::LayoutRight>("LayoutRight float", random, use, ranks);
  offer_ranks<double, Kokkos::LayoutLeft>("LayoutLeft double", random, use, ranks);
  offer_ranks<std::int16_t, Kokkos::LayoutRight>("LayoutRight int16", random, use, ranks);
  // A part with every other index, which is strided.
  const std::size_t rows = 4 + random() % 5, columns = 6 + random() % 5;
  const Kokkos::View<float**, Kokkos::LayoutLeft, Kokkos::HostSpace> whole("whole", rows, columns);
  offer("part", Kokkos::subview(whole, std::pair<std::size_t, std::size_t>(1, rows - 1), Kokkos::ALL), use);
  offer("row", Kokkos::subview(whole, 1, Kokkos::ALL), use);
  using strided = Kokkos::View<float**, Kokkos::LayoutStride, Kokkos::HostSpace>;
  offer("LayoutStride", strided(whole.data(), Kokkos::LayoutStride(rows / 2, 2, columns / 2, 2 * rows)), use);
  offer("static extents", Kokkos::View<int[3][5], Kokkos::HostSpace>("static"), use);
}

std::string wrong_properties() {
  std::string wrong;
  const auto check = [&](bool holds, const char* name) {
    if (!holds) wrong += std::string(name) + "; ";
  };
  using number = Kokkos::View<float**, Kokkos::HostSpace>;
  using read_only = Kokkos::View<const float**, Kokkos::HostSpace>;
  using unmanaged = Kokkos::View<float**, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  const number v("v", 2, 3);
  check(std::is_same_v<decltype(adapter<number>::view(v)), tensor_view>, "a View is written");
  check(std::is_same_v<decltype(adapter<read_only>::view(read_only(v))), const_tensor_view>,
        "a View of const elements is only read");
  check(adapter<read_only>::view(read_only(v)).data == reinterpret_cast<const std::byte*>(v.data()), "same memory");
  check(adapter<unmanaged>::view(unmanaged(v.data(), 2, 3)).strides == extents{3, 1}, "unmanaged memory");
  check(adapter<number>::view(v).where == device{}, "host memory");
  check(kokkos_dtype<bool> == dtype::boolean, "bool");
  check(kokkos_dtype<unsigned char> == dtype::uint8 && kokkos_dtype<signed char> == dtype::int8, "bytes");
  check(kokkos_dtype<long> == dtype::int64 && kokkos_dtype<long long> == dtype::int64, "long");
  check(kokkos_dtype<unsigned short> == dtype::uint16 && kokkos_dtype<unsigned> == dtype::uint32, "unsigned");
  check(kokkos_dtype<Kokkos::complex<float>> == dtype::complex64, "complex<float>");
  check(kokkos_dtype<Kokkos::complex<double>> == dtype::complex128, "complex<double>");
  check(kokkos_dtype<void*> == dtype::undefined, "what is no number");
  return wrong;
}

void with_allocated(const extents& sizes, const std::function<void(const tensor_view&)>& use) {
  using view = Kokkos::View<double***, Kokkos::LayoutRight, Kokkos::HostSpace>;
  const view made = adapter<view>::allocate(dtype::float64, sizes, {});
  use(adapter<view>::view(made));
}

}  // namespace views
