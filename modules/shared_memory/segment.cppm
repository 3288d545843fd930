// SPDX-License-Identifier: Apache-2.0
// segment: the memory that the processes of a group share: a desk and an error note for each rank, and a ring of bytes
// from each rank to each other rank. Every shared word has one writer, unless its comment says otherwise, so that a
// process may die between any two stores. Messages are in engine.
module;
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.shared_memory:segment;

import shardmesh.comm;

namespace shardmesh::shared_memory {

using word = std::atomic<std::uint32_t>;
using position = std::atomic<std::uint64_t>;
static_assert(word::is_always_lock_free && position::is_always_lock_free);

enum class presence : std::uint32_t { absent, joined, left };

/// The maximum number of unanswered lent messages from one rank to another.
inline constexpr std::uint64_t most_lent = 32;

/// The shared state of one rank. `bell` counts the events that may concern the rank, which sleeps until `bell` changes.
/// Every rank increments `bell`; only the rank itself writes the other members.
struct alignas(64) desk {
  word bell;
  word sleepers;  // sleeping threads of the rank
  std::atomic<presence> state;
  word process;                   // process id
  position began;                 // its start time in ticks since boot, because ids are reused; 0: unknown
  position guard_address, guard;  // the rank's guard word; others may read its memory while it has this value
  /// The rank's latest call and its time (0: none), for the errors of ranks that wait for it.
  std::array<std::atomic<char>, 48> call;
  std::atomic<std::int64_t> called_at;  // nanoseconds of the steady clock, which all processes of the machine share
};

/// The error with which a rank poisons the group. The rank writes it before `head::poisoned_by` names the rank, and
/// never afterwards.
struct alignas(64) poison_note {
  std::uint32_t code;        // the errc, for a note without bytes
  std::uint32_t size_bytes;  // 0: there was no memory to write more than the code
  std::array<std::byte, 8184> bytes;
};

/// A ring of bytes with one writing and one reading rank. Positions only grow. The writer's answers to the reader's
/// lent messages bypass the ring. They never wait for room, because at most `most_lent` messages are lent at a time.
struct ring_state {
  alignas(64) position written;  // stored by the writer, like `answered` and `answers`
  position answered;
  alignas(64) position read;      // stored by the reader, like `reads_memory`
  alignas(64) word writer_waits;  // the writer waits for room; it sets this, and the reader clears it
  word reads_memory;              // the reader can read the writer's memory
  alignas(64) std::array<position, most_lent> answers;
};

/// The answer to a lent message: the receiver has read the bytes (`is_taken`), or asks the sender to send them.
struct lent_answer {
  std::uint64_t number = 0;
  bool is_taken = false;
};

class ring {
 public:
  ring(ring_state* state, std::byte* bytes, std::uint64_t capacity)
      : state_(state), bytes_(bytes), capacity_(capacity) {}

  std::uint64_t readable() const;
  std::uint64_t writable() const;
  /// Writes as many of the bytes as there is room for. Returns their number.
  std::uint64_t write(std::span<const std::byte> bytes);
  /// Reads as many bytes as are available, up to the size of `bytes`. Returns their number.
  std::uint64_t read(std::span<std::byte> bytes);
  /// Asks the reader to notify the writer when it makes room. Called by the writer after it found room for less than
  /// `size_bytes` (at most the capacity). Returns false when there is enough room by now.
  bool wait_for_room(std::uint64_t size_bytes);
  /// Writes the writer's answer to a lent message of the reader. Precondition: fewer than `most_lent` answers are
  /// unread.
  void answer(lent_answer given);
  /// Returns the number of answers that were ever written. `answer_at` returns answer number `index`.
  std::uint64_t answered() const { return state_->answered.load(std::memory_order_acquire); }
  lent_answer answer_at(std::uint64_t index) const;
  /// Returns whether the writer waits to be notified, and clears that flag. The reader calls it after reading.
  bool take_wish() { return state_->writer_waits.load() != 0 && state_->writer_waits.exchange(0) != 0; }
  /// Returns whether the reader can read the writer's memory. The ring then carries only the addresses of large
  /// messages.
  bool reads_memory() const { return state_->reads_memory.load() != 0; }
  void set_reads_memory(bool reads) { state_->reads_memory.store(reads ? 1 : 0); }

 private:
  ring_state* state_;
  std::byte* bytes_;
  std::uint64_t capacity_;
};

class segment {
 public:
  static result<std::shared_ptr<segment>> make(std::int32_t ranks, std::uint64_t ring_bytes, bool reads_memory);
  static result<std::shared_ptr<segment>> open(std::string_view token);
  segment(const segment&) = delete;
  segment& operator=(const segment&) = delete;
  ~segment();

  std::string token() const;
  std::int32_t size() const;
  desk& desk_of(std::int32_t rank);
  ring between(std::int32_t from, std::int32_t to);

  /// Returns whether the group's options let ranks read each other's memory.
  bool reads_memory() const;

  /// Claims the given rank for this process. Others may read its memory while `guard` is unchanged.
  /// \errors errc::invalid_argument: another process is that rank already
  result<void> take_place(std::int32_t rank, const position& guard);
  /// Returns the readable memory of another rank. Precondition: that rank has joined.
  detail::peer_memory memory_of(std::int32_t rank);
  /// Returns false when the rank's process has ended without leaving the group.
  bool is_alive(std::int32_t rank);

  /// Records the rank's current call. `last_call` describes the call that a rank recorded last.
  void note_call(std::int32_t rank, std::string_view part);
  std::string last_call(std::int32_t rank);

  /// Wakes a rank, because something that concerns it has changed.
  void ring_bell(std::int32_t rank);
  void ring_all_bells();
  /// Waits until the rank's bell differs from `seen`, or until `until`. It spins for some microseconds before it
  /// sleeps.
  void wait_for_bell(std::int32_t rank, std::uint32_t seen, std::chrono::steady_clock::time_point until);

  /// Poisons the group, unless it is poisoned already, and rings all bells. One compare-and-exchange publishes the
  /// rank's complete note: if the rank dies before that, the other ranks can still poison the group. Without memory for
  /// the text, the note holds only the code.
  void set_poison(std::int32_t rank, const error& reason) noexcept;
  std::optional<error> poison();

 private:
  struct head;
  poison_note& note_of(std::int32_t rank);
  segment(int file, void* memory, std::size_t size_bytes) : file_(file), memory_(memory), size_bytes_(size_bytes) {}
  head& head_of() const;
  int file_ = -1;  // rank r holds a lock on byte r while it lives
  void* memory_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace shardmesh::shared_memory
