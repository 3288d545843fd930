// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace gpu_double {
namespace {

constexpr std::size_t guard_bytes = 512;
constexpr std::size_t kept_at_most = std::size_t{256} << 20;
constexpr std::size_t uses_at_most = 512;

// Whether [begin, begin + bytes) overlaps a row.
bool meets(std::uintptr_t begin, std::size_t bytes, const touch& rows) {
  if (begin >= rows.begin + rows.span() || rows.begin >= begin + bytes) return false;
  if (rows.rows == 1 || rows.pitch == 0 || begin < rows.begin) return true;
  const std::size_t into = (begin - rows.begin) % rows.pitch;
  return into < rows.bytes || into + bytes > rows.pitch;
}

bool overlap(const touch& a, const touch& b) {
  if (a.bytes == 0 || b.bytes == 0) return false;
  if (a.rows > b.rows) return overlap(b, a);
  for (std::size_t row = 0; row < a.rows; ++row)
    if (meets(a.begin + row * a.pitch, a.bytes, b)) return true;
  return false;
}

bool all_are(const unsigned char* from, const unsigned char* to, unsigned char value) {
  return std::all_of(from, to, [&](unsigned char each) { return each == value; });
}

}  // namespace

memory& memory_of_the_double() {
  static memory* const made = new memory;
  return *made;
}

void memory::reset() {
  for (auto& [at, which] : all_)
    if (which.mapping) munmap(which.mapping, which.mapped);
  all_.clear();
  used_.clear();
  freed_.clear();
  kept_ = 0;
  numbers_ = 0;
  limit_ = std::size_t{64} << 30;
}

std::size_t memory::used(int device) const {
  const auto found = used_.find(device);
  return found == used_.end() ? 0 : found->second;
}

allocation* memory::make(memory_kind kind, int device, std::size_t bytes) {
  if (bytes > (std::size_t{1} << 46)) return nullptr;
  if (kind == memory_kind::device && (bytes > limit_ || used_[device] > limit_ - bytes)) return nullptr;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t mapped = (bytes + 2 * guard_bytes + page - 1) / page * page;
  void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  allocation made;
  auto* const first = static_cast<unsigned char*>(mapping);
  made.begin = reinterpret_cast<std::uintptr_t>(first + guard_bytes);
  made.bytes = bytes;
  made.kind = kind;
  made.device = device;
  made.number = ++numbers_;
  made.mapping = mapping;
  made.mapped = mapped;
  std::memset(first, guard, guard_bytes);
  std::memset(first + guard_bytes, fresh, bytes);
  std::memset(first + guard_bytes + bytes, guard, mapped - guard_bytes - bytes);
  if (kind == memory_kind::device) used_[device] += bytes;
  return &(all_[reinterpret_cast<std::uintptr_t>(mapping)] = std::move(made));
}

allocation* memory::enrol(void* host, std::size_t bytes, int device) {
  allocation made;
  made.begin = reinterpret_cast<std::uintptr_t>(host);
  made.bytes = bytes;
  made.kind = memory_kind::registered;
  made.device = device;
  made.number = ++numbers_;
  return &(all_[made.begin] = std::move(made));
}

void memory::end(allocation& which) {
  which.uses.clear();
  if (which.kind == memory_kind::registered) {
    all_.erase(which.begin);
    return;
  }
  check_patterns(which);
  std::memset(reinterpret_cast<void*>(which.begin), freed, which.bytes);
  which.now = allocation::life::freed;
  if (which.kind == memory_kind::device) used_[which.device] -= which.bytes;
  kept_ += which.mapped;
  freed_.push_back(reinterpret_cast<std::uintptr_t>(which.mapping));
  while (kept_ > kept_at_most && freed_.size() > 1) {
    allocation& oldest = all_.at(freed_.front());
    check_patterns(oldest);
    kept_ -= oldest.mapped;
    munmap(oldest.mapping, oldest.mapped);
    all_.erase(freed_.front());
    freed_.erase(freed_.begin());
  }
}

allocation* memory::find(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  auto found = all_.upper_bound(at);
  if (found == all_.begin()) return nullptr;
  allocation& which = std::prev(found)->second;
  const std::uintptr_t end = which.mapping ? std::prev(found)->first + which.mapped : which.begin + which.bytes;
  return at < end ? &which : nullptr;
}

std::string memory::describe(const allocation& which) const {
  constexpr const char* kinds[] = {"device memory", "pinned memory", "registered memory"};
  std::string text = std::string(kinds[static_cast<int>(which.kind)]) + " " + std::to_string(which.number) + " (" +
                     std::to_string(which.bytes) + " bytes";
  if (which.kind == memory_kind::device) text += " on device " + std::to_string(which.device);
  return text + ")";
}

// Reports each damage once: the bytes are restored.
void memory::check_patterns(allocation& which) {
  if (!which.mapping) return;
  auto* const first = static_cast<unsigned char*>(which.mapping);
  auto* const begin = reinterpret_cast<unsigned char*>(which.begin);
  auto* const end = begin + which.bytes;
  auto* const last = first + which.mapped;
  const auto expect = [&](unsigned char* from, unsigned char* to, unsigned char pattern, const std::string& text) {
    if (all_are(from, to, pattern)) return;
    engine::the().problem(text);
    std::memset(from, pattern, static_cast<std::size_t>(to - from));
  };
  expect(first, begin, guard, "bytes before " + describe(which) + " were written");
  expect(end, last, guard, "bytes behind " + describe(which) + " were written");
  if (which.now == allocation::life::freed)
    expect(begin, end, freed, describe(which) + " was written after it was freed");
}

void memory::look_at_patterns() {
  for (auto& [at, which] : all_) check_patterns(which);
}

void memory::note(allocation& in, const operation_ref& op, const touch& what) {
  std::erase_if(in.uses, [](const allocation::use& other) { return engine::the().known(*other.by); });
  for (const allocation::use& other : in.uses)
    if ((what.writes || other.what.writes) && overlap(what, other.what) &&
        (other.by == op ? what.part != other.what.part : !engine::ordered(*other.by, *op))) {
      engine::the().problem(std::string("nothing orders ") + op->what + ", which " +
                            (what.writes ? "writes " : "reads ") + describe(in) + ", and " + other.by->what +
                            ", which " + (other.what.writes ? "writes" : "reads") + " the same bytes");
      break;
    }
  if (in.uses.size() >= uses_at_most) in.uses.erase(in.uses.begin(), in.uses.begin() + uses_at_most / 2);
  in.uses.push_back({op, what});
}

void memory::note_order(const operation_ref& op, const std::vector<touch>& accesses) {
  for (const touch& what : accesses)
    if (allocation* in = find(reinterpret_cast<const void*>(what.begin))) note(*in, op, what);
}

bool memory::allows(const operation& op, const std::vector<touch>& accesses) {
  bool good = true;
  for (const touch& what : accesses) {
    const allocation* in = find(reinterpret_cast<const void*>(what.begin));
    if (!in || what.bytes == 0) continue;
    const char* wrong = nullptr;
    if (!in->holds(what.begin, what.span())) wrong = "goes over the end of ";
    if (in->now == allocation::life::freed) wrong = "uses, after it was freed, ";
    if (in->now == allocation::life::not_yet) wrong = "uses, before it is there, ";
    if (!wrong) continue;
    engine::the().problem(op.what + " " + wrong + describe(*in));
    good = false;
  }
  return good;
}

}  // namespace gpu_double
