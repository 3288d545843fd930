// SPDX-License-Identifier: Apache-2.0
// Arithmetic on subnormal numbers as in IEEE 754, whatever the thread's mode (torch.set_flush_denormal, or a program
// built with -ffast-math). Sums and products of tensors do not use it: they follow the thread's mode, as PyTorch's do.
#pragma once
#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace shardmesh {

/// While it lives, this thread neither reads nor writes subnormal numbers as zero. Keep the arithmetic in a separate
/// function that is not inlined: compilers move arithmetic past the change of mode.
class ieee_mode {
 public:
  ieee_mode() : before_(read()) { write(before_ & ~flags); }
  ~ieee_mode() { write(before_); }
  ieee_mode(const ieee_mode&) = delete;
  ieee_mode& operator=(const ieee_mode&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr std::uint64_t flags = 0x8040;  // flush to zero, denormals are zero
  static std::uint64_t read() { return _mm_getcsr(); }
  static void write(std::uint64_t mode) { _mm_setcsr(static_cast<unsigned>(mode)); }
#elif defined(__aarch64__)
  static constexpr std::uint64_t flags = 1U << 24 | 1U << 19;  // FZ, FZ16
  static std::uint64_t read() {
    std::uint64_t mode = 0;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void write(std::uint64_t mode) { asm volatile("msr fpcr, %0" ::"r"(mode)); }
#else
  static constexpr std::uint64_t flags = 0;
  static std::uint64_t read() { return 0; }
  static void write(std::uint64_t) {}
#endif
  std::uint64_t before_;
};

}  // namespace shardmesh
