// SPDX-License-Identifier: Apache-2.0
// Kokkos::deep_copy within device memory, for the bandwidth table: the rows of bandwidth.cu, if a Kokkos for CUDA is at
// hand (Kokkos_ROOT). Prints rows of that table.
#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdio>

namespace {

template <class Layout>
void row(const char* name, const Kokkos::View<float**, Layout>& to,
         const Kokkos::View<float**, Kokkos::LayoutRight>& from) {
  constexpr int calls = 20;
  for (int i = 0; i < 3; ++i) Kokkos::deep_copy(to, from);
  Kokkos::fence();
  Kokkos::Timer timer;
  for (int i = 0; i < calls; ++i) Kokkos::deep_copy(to, from);
  Kokkos::fence();
  const double seconds = timer.seconds() / calls;
  const double bytes = 2.0 * static_cast<double>(from.size()) * sizeof(float);
  std::printf("| %s | %.0f | – | – | – |\n", name, bytes / seconds * 1e-9);
}

}  // namespace

int main(int count, char** arguments) {
  const Kokkos::ScopeGuard guard(count, arguments);
  const Kokkos::View<float**, Kokkos::LayoutRight> from("from", 8192, 16384), to("to", 8192, 16384);
  row("Kokkos::deep_copy, contiguous, 512 MiB", to, from);
  const Kokkos::View<float**, Kokkos::LayoutRight> square("square", 8192, 8192);
  const Kokkos::View<float**, Kokkos::LayoutLeft> turned("turned", 8192, 8192);
  row("Kokkos::deep_copy, transpose of 8192 x 8192 float32", turned, square);
  return 0;
}
