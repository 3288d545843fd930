// SPDX-License-Identifier: Apache-2.0
// thread_state: the state that the threads of a group share. Not exported. One lock guards all of it; only the copying
// of messages happens outside the lock.
// A message has two ends, one in an exchange of each rank. Ends meet in the channel of their pair of ranks, where the
// first to arrive waits. States of an end: waiting -> matched -> busy (a thread copies or reads, unlocked) -> done.
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
  message_end* twin = nullptr;  // the other end; set from `matched` on
  message_end *next = nullptr, *previous = nullptr;
  std::int32_t peer = 0;
  bool sends = false;
  end_state state = end_state::waiting;
  std::size_t size = 0;
  const std::byte* from = nullptr;  // the sender's bytes; null in a lending
  std::byte* to = nullptr;          // the receiver's buffer; null in a lending
  const lender* pieces = nullptr;
  bool is_lent = false;
};

// The ends that wait for their twins, in call order. The waiting ends of one tag are either all sends or all receives.
struct channel {
  message_end *first = nullptr, *last = nullptr;
  void push_back(message_end& end);
  void remove(message_end& end);
};

// One started exchange or lending. Objects are recycled, so that a program in a steady state allocates nothing: the
// user holds a face, which is a member, and deleting the face returns the whole object to the group.
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
  thread_exchange* next_returned = nullptr;  // next in the list `rank_desk::returned`
  std::int32_t rank = 0;
  std::uint32_t tag = 0;
  const char* part = "an exchange";
  const char* call = "";  // the name of the call that the exchange is part of; may be empty
  detail::call_limits limits;
  std::vector<message_end> ends;  // sends, then receives; never reallocated while in use
  std::size_t sends = 0;
  std::size_t open = 0;       // ends that are not done
  std::size_t unmatched = 0;  // receiving ends without a twin
  std::size_t busy = 0;       // ends that a thread copies or reads
  bool reading = false;       // a lending between wait_ready and give_back
  std::uint64_t event = 0;    // the exchange's number in the rank's trace
};

// One all_gather in progress: the bytes of the ranks that have arrived.
struct gathering {
  std::vector<std::vector<std::byte>> parts;
  std::vector<bool> came;
  std::int32_t missing = 0;
};

// The state of one rank.
struct rank_desk {
  // Wakes the rank if it waits. Needs the lock.
  void signal();
  // Waits for a signal or the deadline, with the lock released. It spins for some microseconds first, because most
  // waits are shorter than going to sleep and waking up. `most_looks` limits the spinning; `looks` lowers the limit
  // after spins that found no signal.
  void wait(std::unique_lock<std::mutex>& locked, const time_limit& deadline, std::int32_t most_looks);
  // Takes an unused exchange, or returns null. Needs the lock.
  thread_exchange* take_idle();
  // Returns an exchange for reuse. Does not need the lock.
  void give_back(thread_exchange& exchange);

  std::condition_variable changed;
  std::atomic<std::uint32_t> signals{0};
  std::int32_t looks = 0;  // spins of the next wait
  std::uint32_t waits = 0;
  bool left = false;
  std::vector<std::unique_ptr<thread_exchange>> owned;
  std::vector<thread_exchange*> idle;
  std::atomic<thread_exchange*> returned{nullptr};  // a list of exchanges given back since `idle` was last filled
  std::vector<std::uint64_t> seen;                  // per peer: the last list of peers that named it (see check_peers)
  std::uint64_t lists = 0;
  object_numbers numbers;
  trace_ring trace;
};

// The most spins of a wait in a group of this many ranks.
std::int32_t most_looks_among(std::int32_t ranks);

// Takes the lock. It retries some times before it blocks, because the lock is held for fractions of a microsecond only.
void enter(std::unique_lock<std::mutex>& unlocked);
std::unique_lock<std::mutex> enter(thread_state& group);

struct thread_state : std::enable_shared_from_this<thread_state> {
  explicit thread_state(std::int32_t ranks);

  const std::int32_t size;
  const std::int32_t most_looks;  // spins of a wait, at most
  std::mutex lock;
  std::vector<rank_desk> desks;
  std::vector<channel> channels;  // [from * size + to]
  std::optional<error> poison;
  std::int32_t poisoned_by = 0;
  std::shared_ptr<gathering> gather;
  const std::uint64_t maker;  // token of the process that made the group

  // Returns whether this is a forked child's copy. The copy has no threads, and its lock may be held for ever, so no
  // call may wait on it.
  bool is_forked() const;
  error of_another_process(std::int32_t rank) const;  // the error of a call on such a copy
  channel& between(std::int32_t from, std::int32_t to) {
    return channels[static_cast<std::size_t>(from) * static_cast<std::size_t>(size) + static_cast<std::size_t>(to)];
  }
  rank_desk& desk(std::int32_t rank) { return desks[static_cast<std::size_t>(rank)]; }

  // These three need the lock.
  void set_poison(error reason, std::int32_t rank);
  result<detail::call_limits> begin_call(std::int32_t rank, const call_options& options, const char* part);
  std::string doing(std::span<const std::int32_t> ranks);

  result<std::vector<std::vector<std::byte>>> all_gather(std::int32_t rank, std::span<const std::byte> bytes,
                                                         const call_options& options);
};

// Starts an exchange or a lending of one rank. The group owns the returned object; null when there are no messages.
result<thread_exchange*> start(const std::shared_ptr<thread_state>& group, std::int32_t rank,
                               std::span<const outgoing> sends, std::span<const incoming> receives,
                               const call_options& options);
result<thread_exchange*> start(const std::shared_ptr<thread_state>& group, std::int32_t rank,
                               std::span<const lent> lends, std::span<const borrowed> borrows,
                               const call_options& options);

}  // namespace shardmesh
