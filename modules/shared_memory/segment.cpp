// SPDX-License-Identifier: Apache-2.0
// Making, finding and leaving a segment: memory without a name, which other processes open by way of its maker's.
module;
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
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
constexpr std::uint64_t magic = 0x316d6873'68736d64;  // changes with this layout
constexpr std::size_t most_poison_bytes = 8192;
enum class telling : std::uint32_t { nothing, writes, told };

error system_problem(std::string what, int number) {
  error made = fail(errc::io, std::move(what));
  made.sys = number;
  return made;
}

// Also of one that nobody has asked for its status yet.
bool has_ended(pid_t process) {
  const auto file = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  if (file < 0) return errno == ESRCH;
  ::pollfd ended{file, POLLIN, 0};
  const bool is_over = ::poll(&ended, 1, 0) == 1;
  ::close(file);
  return is_over;
}

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;  // what is mapped stays there
}  // namespace

struct segment::head {
  std::uint64_t magic;
  std::array<std::uint64_t, 2> id;
  std::uint64_t ring_bytes;
  std::int32_t size;
  std::uint32_t reads_memory;
  std::atomic<telling> poison_state;
  std::uint32_t poison_bytes;
  std::array<std::byte, most_poison_bytes> poison;
};

namespace {

// Offsets in the memory; all sides compute them alike.
struct map {
  std::size_t desks, states, rings, end;
  map(std::size_t head_bytes, std::uint64_t ranks, std::uint64_t ring_bytes)
      : desks((head_bytes + 63) / 64 * 64),
        states(desks + ranks * sizeof(desk)),
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
  const int file = ::memfd_create("shardmesh", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return system_problem("no memory can be had that processes share", errno);
  std::shared_ptr<segment> made(new segment(file, nullptr, 0));
  if (::ftruncate(file, static_cast<off_t>(size)) != 0 || ::fcntl(file, F_ADD_SEALS, seals) != 0)
    return system_problem(fmt::format("no {} bytes of memory can be had that processes share", size), errno);
  void* const at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return system_problem(fmt::format("{} bytes of shared memory cannot be mapped", size), errno);
  made->memory_ = at;
  made->size_bytes_ = size;
  // New memory is zero, and zero is how desks, rings and the telling begin.
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
    return fail(errc::invalid_argument, "this is no token of a group of processes").with_values("", std::string(token));
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
        .with_hint("its maker lives, and runs on this machine, in this container and as this user");
  };
  // Opened anew, so that this rank's lock is its own.
  const int file =
      ::open(fmt::format("/proc/{}/fd/{}", numbers[0], numbers[1]).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return not_there(errno);
  std::shared_ptr<segment> made(new segment(file, nullptr, 0));
  struct ::stat about{};
  if (::fstat(file, &about) != 0) return not_there(errno);
  const auto size = static_cast<std::size_t>(about.st_size);
  // Another file may have got that number since.
  if (!S_ISREG(about.st_mode) || ::fcntl(file, F_GET_SEALS) != seals || size < sizeof(head)) return not_there(0);
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

result<void> segment::take_place(std::int32_t rank, const std::uint64_t& guard) {
  desk& mine = desk_of(rank);
  // The lock comes first: who sees that the rank has joined may look whether it lives.
  struct ::flock life{};
  life.l_type = F_WRLCK;
  life.l_whence = SEEK_SET;
  life.l_start = rank;
  life.l_len = 1;
  const auto taken = [&] {
    return fail(errc::invalid_argument, fmt::format("rank {} has joined this group already", rank)).with_rank(rank);
  };
  if (mine.state.load() != presence::absent || ::fcntl(file_, F_OFD_SETLK, &life) != 0) return taken();
  if (mine.state.load() != presence::absent) return taken();  // it left between the two
  mine.process.store(static_cast<std::uint32_t>(::getpid()));
  mine.guard_address.store(reinterpret_cast<std::uintptr_t>(&guard));
  mine.guard.store(guard);
  mine.state.store(presence::joined);
  return {};
}

bool segment::is_alive(std::int32_t rank) {
  desk& other = desk_of(rank);
  if (other.state.load() != presence::joined) return true;
  struct ::flock life{};
  life.l_type = F_WRLCK;
  life.l_whence = SEEK_SET;
  life.l_start = rank;
  life.l_len = 1;
  if (::fcntl(file_, F_OFD_GETLK, &life) == 0 && life.l_type == F_UNLCK) return other.state.load() != presence::joined;
  // A child that it forked may hold the lock still.
  const auto process = static_cast<pid_t>(other.process.load());
  return process == 0 || !has_ended(process);
}

void segment::note_call(std::int32_t rank, std::string_view part) {
  desk& mine = desk_of(rank);
  // Letters one by one: who reads meanwhile sees some of both, which is no harm.
  const std::size_t length = std::min(part.size(), mine.call.size() - 1);
  for (std::size_t i = 0; i < length; ++i) mine.call[i].store(part[i], std::memory_order_relaxed);
  mine.call[length].store(0, std::memory_order_relaxed);
  mine.called_at.store(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1),
                       std::memory_order_relaxed);
}

std::string segment::last_call(std::int32_t rank) {
  desk& other = desk_of(rank);
  const std::int64_t then = other.called_at.load(std::memory_order_relaxed);
  if (then == 0) return fmt::format("rank {} has made no call with a name", rank);
  std::string call;
  for (const std::atomic<char>& letter : other.call) {
    const char c = letter.load(std::memory_order_relaxed);
    if (c == 0) break;
    call += c;
  }
  const auto now = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  return fmt::format("rank {} was last in {}, {:.3g} s ago", rank, call, static_cast<double>(now - then) / 1e9);
}

void segment::set_poison(const error& reason) {
  head& top = head_of();
  telling expected = telling::nothing;
  if (!top.poison_state.compare_exchange_strong(expected, telling::writes)) return;
  std::vector<std::byte> bytes = to_bytes(reason);
  if (bytes.size() > most_poison_bytes) {
    error shorter = fail(reason.code, reason.message.substr(0, most_poison_bytes / 4));
    shorter.ranks.assign(reason.ranks.begin(), reason.ranks.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(
                                                                          reason.ranks.size(), 64)));
    bytes = to_bytes(shorter);
  }
  std::copy(bytes.begin(), bytes.end(), top.poison.begin());
  top.poison_bytes = static_cast<std::uint32_t>(bytes.size());
  top.poison_state.store(telling::told);
  ring_all_bells();
}

std::optional<error> segment::poison() {
  head& top = head_of();
  if (top.poison_state.load(std::memory_order_acquire) != telling::told) return std::nullopt;
  auto reason =
      error_from_bytes(std::span(top.poison).first(std::min<std::size_t>(top.poison_bytes, most_poison_bytes)));
  return reason ? *std::move(reason) : fail(errc::communication, "a rank told an error that cannot be read");
}

}  // namespace shardmesh::shared_memory
