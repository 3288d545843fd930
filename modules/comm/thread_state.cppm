// SPDX-License-Identifier: Apache-2.0
// Not exported: what the threads of a group share. One lock guards everything but the copying of messages.
// A message has two ends, one in an exchange of each rank. Ends meet in the channel of their pair of ranks; the first
// to come waits there. From then on: waiting -> matched -> busy (somebody copies or reads, outside the lock) -> done.
module shardmesh.comm:thread_state;

import shardmesh.std;
import shardmesh.core;
import :communicator;
import :lending;
import :object_numbers;
import :trace;

namespace shardmesh {

struct thread_state;
struct thread_exchange;

enum class end_state : std::uint8_t { waiting, matched, busy, done };

struct message_end {
  thread_exchange* owner = nullptr;
  message_end* twin = nullptr;  // from matched on
  message_end *next = nullptr, *previous = nullptr;
  std::int32_t peer = 0;
  bool sends = false;
  end_state state = end_state::waiting;
  std::size_t size = 0;
  const std::byte* from = nullptr;  // of a sender; null when it is lent
  std::byte* to = nullptr;          // of a receiver; null when it is lent
  const lender* pieces = nullptr;
  bool is_lent = false;
};

// Ends that wait for their twins, in call order. Ends of one tag are all sends or all receives.
struct channel {
  message_end *first = nullptr, *last = nullptr;
  void push_back(message_end& end);
  void remove(message_end& end);
};

// One started exchange or lending. Recycled, so that a steady program allocates nothing: the faces that the user holds
// are members, and deleting one gives the whole back to the group.
struct thread_exchange {
  struct pending_face final : pending::operation {
    explicit pending_face(thread_exchange& exchange) : self(exchange) {}
    static void operator delete(pending_face* face, std::destroying_delete_t) { face->self.recycle(); }
    bool done() override;
    result<void> wait() override;
    thread_exchange& self;
  };
  struct lending_face final : lending::operation {
    explicit lending_face(thread_exchange& exchange) : self(exchange) {}
    static void operator delete(lending_face* face, std::destroying_delete_t) { face->self.recycle(); }
    bool ready() override;
    result<void> wait_ready() override;
    const lender& from(std::size_t receive) const override { return *self.ends[self.sends + receive].twin->pieces; }
    bool interrupted() override;
    void give_back() override;
    bool done() override;
    result<void> wait() override;
    thread_exchange& self;
  };

  thread_exchange() : as_pending(*this), as_lending(*this) {}
  thread_exchange(const thread_exchange&) = delete;
  thread_exchange& operator=(const thread_exchange&) = delete;
  void recycle();

  pending_face as_pending;
  lending_face as_lending;
  std::shared_ptr<thread_state> group;       // null while idle
  thread_exchange* next_returned = nullptr;  // in the desk's list
  std::int32_t rank = 0;
  std::uint32_t tag = 0;
  const char* call = "";  // that it is part of
  std::optional<std::chrono::steady_clock::time_point> deadline;
  std::stop_token cancel;
  std::vector<message_end> ends;  // sends, then receives; never reallocated while in use
  std::size_t sends = 0;
  std::size_t open = 0;       // ends that are not done
  std::size_t unmatched = 0;  // receiving ends that wait
  std::size_t busy = 0;       // ends that somebody copies or reads
  bool reading = false;       // a lending between wait_ready and give_back
  std::uint64_t event = 0;    // in the rank's trace
};

// One all_gather: the ranks' bytes, until the last has come.
struct gathering {
  std::vector<std::vector<std::byte>> parts;
  std::vector<bool> came;
  std::int32_t missing = 0;
};

// One rank's place.
struct rank_desk {
  // Something that the rank may wait for has happened. With the lock held.
  void signal();
  // Waits for a signal, or until the deadline: awake for some microseconds, since most waits are shorter than falling
  // asleep and being woken; then asleep. The lock is released meanwhile. `most_looks`: how long it stays awake where
  // that has paid before.
  void wait(std::unique_lock<std::mutex>& locked, const std::optional<std::chrono::steady_clock::time_point>& deadline,
            std::int32_t most_looks);
  // An exchange that nobody uses, if there is one. With the lock held.
  thread_exchange* take_idle();
  // Gives one back, without the lock.
  void give_back(thread_exchange& exchange);

  std::condition_variable changed;
  std::atomic<std::uint32_t> signals{0};
  std::int32_t looks = 0;  // of the next wait
  std::uint32_t waits = 0;
  bool left = false;
  std::vector<std::unique_ptr<thread_exchange>> owned;
  std::vector<thread_exchange*> idle;
  std::atomic<thread_exchange*> returned{nullptr};  // a list; those that were given back since
  std::vector<std::uint64_t> seen;                  // per peer: number of the list of peers in which it was met last
  std::uint64_t lists = 0;
  object_numbers numbers;
  trace_ring trace;
};

// Takes the lock, which is held for fractions of a microsecond at a time: looks again before it falls asleep over it.
void enter(std::unique_lock<std::mutex>& unlocked);
std::unique_lock<std::mutex> enter(thread_state& group);

struct thread_state : std::enable_shared_from_this<thread_state> {
  explicit thread_state(std::int32_t ranks);

  const std::int32_t size;
  const std::int32_t most_looks;  // of a wait
  std::mutex lock;
  std::vector<rank_desk> desks;
  std::vector<channel> channels;  // [from * size + to]
  std::optional<error> poison;
  std::int32_t poisoned_by = 0;
  std::shared_ptr<gathering> gather;
  const std::uint64_t maker;  // the token of the process that made the group

  // A fork copied the group without its threads, and perhaps with its lock held: nothing may wait here.
  bool is_forked() const;
  error of_another_process(std::int32_t rank) const;  // says so
  channel& between(std::int32_t from, std::int32_t to) {
    return channels[static_cast<std::size_t>(from) * static_cast<std::size_t>(size) + static_cast<std::size_t>(to)];
  }
  rank_desk& desk(std::int32_t rank) { return desks[static_cast<std::size_t>(rank)]; }

  // All of these with the lock held.
  void set_poison(error reason, std::int32_t rank);
  result<void> check_call(std::int32_t rank, const call_options& options, const char* part);
  std::string doing(std::span<const std::int32_t> ranks);

  result<std::vector<std::vector<std::byte>>> all_gather(std::int32_t rank, std::span<const std::byte> bytes,
                                                         const call_options& options);
};

// Starts an exchange (bytes) or a lending of one rank. The returned object belongs to the group.
result<thread_exchange*> start(const std::shared_ptr<thread_state>& group, std::int32_t rank,
                               std::span<const outgoing> sends, std::span<const incoming> receives,
                               const call_options& options);
result<thread_exchange*> start(const std::shared_ptr<thread_state>& group, std::int32_t rank,
                               std::span<const lent> lends, std::span<const borrowed> borrows,
                               const call_options& options);

}  // namespace shardmesh
