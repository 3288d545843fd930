// SPDX-License-Identifier: Apache-2.0
// The device and pinned memory that the double allocated: where each byte is, and which operations access it in which
// order. Memory is in separate mappings with guard bytes on both sides, which are checked when it is freed. Freed
// memory keeps its address, filled with a pattern, so that later uses are found. The calls are in cudart_memory.cpp.
#pragma once
#include "engine.hpp"

#include <map>
#include <optional>

namespace gpu_double {

enum class memory_kind { device, pinned, registered };

struct allocation {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  memory_kind kind = memory_kind::device;
  int device = 0;
  bool from_pool = false;
  enum class life { not_yet, live, freed } now = life::live;
  bool given_back = false;  // freed, perhaps by a stream operation that has not run yet
  std::size_t number = 0;
  void* mapping = nullptr;
  std::size_t mapped = 0;

  struct use {
    operation_ref by;
    touch what;
  };
  std::vector<use> uses;

  bool holds(std::uintptr_t address, std::size_t many) const {
    return address >= begin && many <= bytes && address - begin <= bytes - many;
  }
};

class memory {
 public:
  static constexpr unsigned char fresh = 0xCD, freed = 0xDD, guard = 0xFD;

  void reset();
  void set_limit(std::size_t bytes_per_device) { limit_ = bytes_per_device; }
  std::size_t limit() const { return limit_; }
  std::size_t used(int device) const;

  /// Null if there is no memory for it.
  allocation* make(memory_kind kind, int device, std::size_t bytes);
  allocation* enrol(void* host, std::size_t bytes, int device);
  /// Fills the allocation with a pattern and checks its guards. Its address stays reserved for a while.
  void end(allocation& which);
  /// The allocation, live or freed, whose bytes or guards contain the address; null if the memory is not the double's.
  allocation* find(const void* address);
  const std::map<std::uintptr_t, allocation>& all() const { return all_; }

  /// Reports earlier accesses that are unordered with these of `op`, and records these.
  void note_order(const operation_ref& op, const std::vector<touch>& accesses);
  /// Whether everything that `op` accesses is alive now; reports a problem otherwise.
  bool allows(const operation& op) { return allows(op, op.accesses); }
  bool allows(const operation& op, const std::vector<touch>& accesses);
  /// Reports damaged guards, and freed memory that was written.
  void look_at_patterns();

  std::string describe(const allocation& which) const;

 private:
  void check_patterns(allocation& which);
  void note(allocation& in, const operation_ref& op, const touch& what);

  std::map<std::uintptr_t, allocation> all_;  // by the mapping's first byte
  std::map<int, std::size_t> used_;
  std::size_t limit_ = std::size_t{64} << 30;
  std::size_t numbers_ = 0;
  std::size_t kept_ = 0;  // bytes of freed memory
  std::vector<std::uintptr_t> freed_;
};

memory& memory_of_the_double();

}  // namespace gpu_double
