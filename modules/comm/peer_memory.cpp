// SPDX-License-Identifier: Apache-2.0
module;
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#if defined(__linux__)
#include <sys/uio.h>
#endif
module shardmesh.comm;

namespace shardmesh::detail {

machine_identity this_machine() {
  machine_identity here;
  std::ifstream("/proc/sys/kernel/random/boot_id").read(here.boot, sizeof(here.boot) - 1);
  // "pid:[4026531836]". Containers on one machine have their own process ids.
  static_cast<void>(!readlink("/proc/self/ns/pid", here.process_space, sizeof(here.process_space) - 1));
  return here;
}

#if defined(__linux__)
// One system call copies the entries in list order, so the guard word is read last.
read_outcome peer_memory::read(std::uint64_t address, std::span<std::byte> to) const {
  const auto there = [](std::uint64_t at, std::size_t size) {
    return iovec{reinterpret_cast<void*>(static_cast<std::uintptr_t>(at)), size};  // NOLINT: the peer's address
  };
  for (;;) {
    std::uint64_t guard = 0;
    const iovec here[] = {{to.data(), to.size()}, {&guard, sizeof(guard)}};
    const iovec theirs[] = {there(address, to.size()), there(guard_address_, sizeof(guard))};
    const ssize_t count = process_vm_readv(static_cast<pid_t>(process_), here, 2, theirs, 2, 0);
    if (count == static_cast<ssize_t>(to.size() + sizeof(guard)))
      return guard == guard_ ? read_outcome::done : read_outcome::closed;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == ESRCH) return read_outcome::closed;
    if (count <= 0 || static_cast<std::size_t>(count) >= to.size()) {
      if (to.empty()) return errno == EPERM ? read_outcome::refused : read_outcome::closed;
      // Either only its owner can read this kind of memory, or the peer is revoking it right now.
      return is_open() ? read_outcome::refused : read_outcome::closed;
    }
    address += static_cast<std::uint64_t>(count);
    to = to.subspan(static_cast<std::size_t>(count));
  }
}
#else
read_outcome peer_memory::read(std::uint64_t, std::span<std::byte>) const {
  return read_outcome::refused;
}
#endif

}  // namespace shardmesh::detail
