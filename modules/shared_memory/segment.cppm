// SPDX-License-Identifier: Apache-2.0
// segment: the memory that the processes of a group share, as all of them see it: a desk and an error note for each
// rank, and a ring of bytes from each rank to each other. Every shared word has one writer, except where its comment
// says otherwise, so that a process may die between any two stores. Not here: messages (engine).
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

/// Lent messages from one rank to another that may wait for their answers at a time.
inline constexpr std::uint64_t most_lent = 32;

/// A rank's place. `bell` counts what may have changed for the rank; it sleeps until that does. Every rank adds to
/// `bell`; the rank alone writes the rest.
struct alignas(64) desk {
  word bell;
  word sleepers;  // threads of the rank
  std::atomic<presence> state;
  word process;                   // its number
  position began;                 // when, in ticks since the machine's start; 0: unknown. Numbers come again
  position guard_address, guard;  // what others see of its memory while they may read it
  /// The call that it made last, and when (0: none): for errors of those that wait for it.
  std::array<std::atomic<char>, 48> call;
  std::atomic<std::int64_t> called_at;  // nanoseconds of the steady clock, which is the machine's
};

/// The error with which a rank ends the group. The rank writes it before `head::poisoned_by` names the rank, and never
/// afterwards.
struct alignas(64) poison_note {
  std::uint32_t code;        // errc, for a note without bytes
  std::uint32_t size_bytes;  // 0: there was no memory for the rest
  std::array<std::byte, 8184> bytes;
};

/// Bytes from one rank to another, of which one writes and one reads. Positions only grow. Answers to the reader's own
/// lent messages have places of their own: they never wait for room, because at most `most_lent` messages are lent.
struct ring_state {
  alignas(64) position written;  // by the writer, as the next and `answers`
  position answered;
  alignas(64) position read;      // by the reader, as `reads_memory`
  alignas(64) word writer_waits;  // for room: the writer sets it, the reader clears it
  word reads_memory;              // the reader can read the writer's memory
  alignas(64) std::array<position, most_lent> answers;
};

/// The answer to a lent message: the receiver has its bytes, or wants them sent.
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
  /// As many of the bytes as there is room for. Returns how many.
  std::uint64_t write(std::span<const std::byte> bytes);
  /// As many bytes as there are. Returns how many.
  std::uint64_t read(std::span<std::byte> bytes);
  /// The writer found less room than `size_bytes` (at most the capacity): it is told when some is made. False when
  /// there is as much by now.
  bool wait_for_room(std::uint64_t size_bytes);
  /// The writer answers a lent message of the reader. Precondition: fewer than `most_lent` answers are unread.
  void answer(lent_answer given);
  /// How many answers were written, and answer number `index` of them.
  std::uint64_t answered() const { return state_->answered.load(std::memory_order_acquire); }
  lent_answer answer_at(std::uint64_t index) const;
  /// For the reader, after reading: whether the writer waits to be told.
  bool take_wish() { return state_->writer_waits.load() != 0 && state_->writer_waits.exchange(0) != 0; }
  /// Whether the reader reads the writer's memory: for large messages the ring then has only where they lie.
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

  /// Whether ranks may read each other's memory at all.
  bool reads_memory() const;

  /// This process is that rank from now on; others may read its memory while `guard` is unchanged.
  /// \errors errc::invalid_argument: another has that place
  result<void> take_place(std::int32_t rank, const position& guard);
  /// The memory of another rank that has joined.
  detail::peer_memory memory_of(std::int32_t rank);
  /// False when the process that had the place has ended without leaving it.
  bool is_alive(std::int32_t rank);

  /// Notes what the rank does, and what it did last, in words.
  void note_call(std::int32_t rank, std::string_view part);
  std::string last_call(std::int32_t rank);

  /// Something has changed for the rank.
  void ring_bell(std::int32_t rank);
  void ring_all_bells();
  /// Returns when the bell has rung since it showed `seen`, or at `until`; awake for some microseconds first.
  void wait_for_bell(std::int32_t rank, std::uint32_t seen, std::chrono::steady_clock::time_point until);

  /// The first error stays. One compare-and-exchange publishes the rank's note after all of it is written: a rank that
  /// dies before that has told nothing, and the others can still poison. Rings all bells. Where there is no memory for
  /// the text, the note holds the code alone.
  void set_poison(std::int32_t rank, const error& reason) noexcept;
  std::optional<error> poison();

 private:
  struct head;
  poison_note& note_of(std::int32_t rank);
  segment(int file, void* memory, std::size_t size_bytes) : file_(file), memory_(memory), size_bytes_(size_bytes) {}
  head& head_of() const;
  int file_ = -1;  // a lock on its byte r says that rank r lives
  void* memory_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace shardmesh::shared_memory
