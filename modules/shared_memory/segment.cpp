// SPDX-License-Identifier: Apache-2.0
// Making, opening, and leaving a segment: a memory file without a name, which other processes open through its maker's
// descriptor in /proc.
module;
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.shared_memory;

import shardmesh.comm;
import :segment;

namespace shardmesh::shared_memory {

namespace {
constexpr std::uint64_t magic = 0x326d6873'68736d64;  // to be changed with the layout of the segment

error system_problem(std::string what, int number) {
  error made = fail(errc::io, std::move(what));
  made.sys = number;
  return made;
}

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;  // mapped pages stay valid
constexpr int no_writing = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;

// Accepts further seals, because the system may add its own, such as F_SEAL_EXEC (vm.memfd_noexec).
bool is_sealed_as_ours(int file) {
  const int found = ::fcntl(file, F_GET_SEALS);
  return found >= 0 && (found & seals) == seals && (found & no_writing) == 0;
}

// Makes a file that is not executable: with vm.memfd_noexec=2, the system permits no other. Older kernels do not know
// the flag.
int make_memory_file() {
  constexpr unsigned no_exec = 0x0008;  // MFD_NOEXEC_SEAL, which older headers lack
  const int file = ::memfd_create("shardmesh", MFD_CLOEXEC | MFD_ALLOW_SEALING | no_exec);
  return file >= 0 || errno != EINVAL ? file : ::memfd_create("shardmesh", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

// Serialises an error into at most `most` bytes: shortens a long message, keeps at most 64 ranks, counts the other
// problems, and drops the rest.
std::vector<std::byte> bytes_within(const error& reason, std::size_t most) {
  std::vector<std::byte> bytes = to_bytes(reason);
  if (bytes.size() <= most) return bytes;
  error shorter = fail(reason.code, reason.message.substr(0, most / 4));
  shorter.ranks.assign(reason.ranks.begin(), reason.ranks.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(
                                                                        reason.ranks.size(), 64)));
  shorter.more = reason.problem_count() - 1;
  return to_bytes(shorter);
}
}  // namespace

struct segment::head {
  std::uint64_t magic;
  std::array<std::uint64_t, 2> id;
  std::uint64_t ring_bytes;
  std::int32_t size;
  std::uint32_t reads_memory;
  word poisoned_by;  // r + 1 if the note of rank r is the group's error; 0: not poisoned. Set once, by any rank
};

namespace {

// The byte offsets of the segment's parts; all processes compute the same ones.
struct map {
  std::size_t desks, notes, states, rings, end;
  map(std::size_t head_bytes, std::uint64_t ranks, std::uint64_t ring_bytes)
      : desks((head_bytes + 63) / 64 * 64),
        notes(desks + ranks * sizeof(desk)),
        states(notes + ranks * sizeof(poison_note)),
        rings(states + ranks * ranks * sizeof(ring_state)),
        end(rings + ranks * ranks * ring_bytes) {}
};

}  // namespace

segment::head& segment::head_of() const {
  return *static_cast<head*>(memory_);
}

segment::~segment() {
  if (memory_ != nullptr) ::munmap(memory_, size_bytes_);
  if (file_ >= 0) ::close(file_);
}

result<std::shared_ptr<segment>> segment::make(std::int32_t ranks, std::uint64_t ring_bytes, bool reads_memory) {
  const auto count = static_cast<std::uint64_t>(ranks);
  const std::size_t size = map(sizeof(head), count, ring_bytes).end;
  const int file = make_memory_file();
  if (file < 0) return system_problem("shared memory cannot be created", errno);
  std::shared_ptr<segment> made(new segment(file, nullptr, 0));
  if (::ftruncate(file, static_cast<off_t>(size)) != 0 || ::fcntl(file, F_ADD_SEALS, seals) != 0)
    return system_problem(fmt::format("{} bytes of shared memory cannot be created", size), errno);
  void* const at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return system_problem(fmt::format("{} bytes of shared memory cannot be mapped", size), errno);
  made->memory_ = at;
  made->size_bytes_ = size;
  // New memory is zero, which is the initial state of desks, notes, and rings.
  head& top = *new (at) head;
  std::random_device random;
  for (std::uint64_t& half : top.id) half = static_cast<std::uint64_t>(random()) << 32 | random();
  top.ring_bytes = ring_bytes;
  top.size = ranks;
  top.reads_memory = reads_memory ? 1 : 0;
  top.magic = magic;
  return made;
}

std::string segment::token() const {
  const head& top = head_of();
  return fmt::format("{}:{}:{:016x}{:016x}", ::getpid(), file_, top.id[0], top.id[1]);
}

result<std::shared_ptr<segment>> segment::open(std::string_view token) {
  const auto no_token = [&] {
    return fail(errc::invalid_argument, "the token is not that of a group of processes")
        .with_values("", std::string(token))
        .with_hint("pass the result of shared_memory_group::token");
  };
  std::array<std::int32_t, 2> numbers{};
  std::array<std::uint64_t, 2> id{};
  std::string_view rest = token;
  for (std::int32_t& number : numbers) {
    const auto [end, problem] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    const auto length = static_cast<std::size_t>(end - rest.data());
    if (problem != std::errc() || number < 0 || length == rest.size() || *end != ':') return no_token();
    rest.remove_prefix(length + 1);
  }
  if (rest.size() != 32) return no_token();
  for (std::uint64_t& half : id) {
    const auto [end, problem] = std::from_chars(rest.data(), rest.data() + 16, half, 16);
    if (problem != std::errc() || end != rest.data() + 16) return no_token();
    rest.remove_prefix(16);
  }
  const auto not_there = [&](int number) {
    return system_problem(fmt::format("the group of token {} cannot be opened", token), number)
        .with_hint("check that its maker is still running on this machine, in this container, and as this user");
  };
  // A new open file description, so that this rank's lock is its own.
  const int file =
      ::open(fmt::format("/proc/{}/fd/{}", numbers[0], numbers[1]).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return not_there(errno);
  std::shared_ptr<segment> made(new segment(file, nullptr, 0));
  struct ::stat about{};
  if (::fstat(file, &about) != 0) return not_there(errno);
  const auto size = static_cast<std::size_t>(about.st_size);
  // The maker's descriptor number may belong to another file by now.
  if (!S_ISREG(about.st_mode) || !is_sealed_as_ours(file) || size < sizeof(head)) return not_there(0);
  void* const at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return not_there(errno);
  made->memory_ = at;
  made->size_bytes_ = size;
  const head& top = made->head_of();
  if (top.magic != magic || top.id != id || top.size < 1 ||
      map(sizeof(head), static_cast<std::uint64_t>(top.size), top.ring_bytes).end != size)
    return not_there(0);
  return made;
}

std::int32_t segment::size() const {
  return head_of().size;
}

desk& segment::desk_of(std::int32_t rank) {
  const head& top = head_of();
  const map places(sizeof(head), static_cast<std::uint64_t>(top.size), top.ring_bytes);
  return reinterpret_cast<desk*>(static_cast<std::byte*>(memory_) + places.desks)[rank];
}

poison_note& segment::note_of(std::int32_t rank) {
  const head& top = head_of();
  const map places(sizeof(head), static_cast<std::uint64_t>(top.size), top.ring_bytes);
  return reinterpret_cast<poison_note*>(static_cast<std::byte*>(memory_) + places.notes)[rank];
}

ring segment::between(std::int32_t from, std::int32_t to) {
  const head& top = head_of();
  const map places(sizeof(head), static_cast<std::uint64_t>(top.size), top.ring_bytes);
  const std::size_t number =
      static_cast<std::size_t>(from) * static_cast<std::size_t>(top.size) + static_cast<std::size_t>(to);
  std::byte* const bytes = static_cast<std::byte*>(memory_);
  return {reinterpret_cast<ring_state*>(bytes + places.states) + number, bytes + places.rings + number * top.ring_bytes,
          top.ring_bytes};
}

bool segment::reads_memory() const {
  return head_of().reads_memory != 0;
}

detail::peer_memory segment::memory_of(std::int32_t rank) {
  desk& other = desk_of(rank);
  return {static_cast<std::int64_t>(other.process.load()), other.guard_address.load(), other.guard.load()};
}

void segment::set_poison(std::int32_t rank, const error& reason) noexcept {
  head& top = head_of();
  if (top.poisoned_by.load() != 0) return;
  poison_note& mine = note_of(rank);
  mine.code = static_cast<std::uint32_t>(reason.code);
  mine.size_bytes = 0;
  try {
    const std::vector<std::byte> bytes = bytes_within(reason, mine.bytes.size());
    if (bytes.size() <= mine.bytes.size()) {
      std::copy(bytes.begin(), bytes.end(), mine.bytes.begin());
      mine.size_bytes = static_cast<std::uint32_t>(bytes.size());
    }
  } catch (const std::bad_alloc&) {  // the note keeps only the code
  }
  std::uint32_t nobody = 0;
  if (top.poisoned_by.compare_exchange_strong(nobody, static_cast<std::uint32_t>(rank) + 1)) ring_all_bells();
}

std::optional<error> segment::poison() {
  head& top = head_of();
  const std::uint32_t by = top.poisoned_by.load(std::memory_order_acquire);
  if (by == 0) return std::nullopt;
  const auto rank = static_cast<std::int32_t>(by) - 1;
  const auto unreadable = [&](errc code) {
    return fail(code, fmt::format("rank {} ended the group, and its reason cannot be read", rank)).with_rank(rank);
  };
  if (rank >= size())
    return fail(errc::communication,
                "the shared memory of the group is corrupt: its error names a rank outside the group");
  const poison_note& note = note_of(rank);
  const bool is_code = note.code > 0 && note.code <= static_cast<std::uint32_t>(errc::communication);
  auto reason =
      error_from_bytes(std::span(note.bytes).first(std::min<std::size_t>(note.size_bytes, note.bytes.size())));
  return reason ? *std::move(reason) : unreadable(is_code ? static_cast<errc>(note.code) : errc::communication);
}

}  // namespace shardmesh::shared_memory
