// SPDX-License-Identifier: Apache-2.0
// engine: the state of a shared_memory_communicator. A message is a frame in the ring of its pair of ranks: a head,
// then the bytes. Frames move only while a rank is in a call. One lock guards everything. Rings and bells are in
// segment.
module;
#include <process_token.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>
module shardmesh.shared_memory:engine;

import shardmesh.comm;
import :segment;

namespace shardmesh::shared_memory {

enum class frame_kind : std::uint32_t {
  message,  // a message of an exchange
  gather,   // one rank's part of an all_gather
  lent,     // a message of an exchange whose bytes stay in the sender's memory; its answer bypasses the ring
  again,    // the bytes of a lent message that the receiver could not read
};

struct frame {
  frame_kind kind = frame_kind::message;
  std::uint32_t tag = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t address = 0;  // of a lent message
  std::uint64_t number = 0;   // of a lent message; counts the sender's lent messages
  bool has_bytes() const {
    return kind == frame_kind::message || kind == frame_kind::gather || kind == frame_kind::again;
  }
};

/// The smallest size of a lent message (a peer has at most `most_lent` of them). Below this size, two copies cost less
/// than the announcement and the answer.
inline constexpr std::size_t lent_bytes = 32 << 10;

/// One started exchange, or an all_gather.
struct exchange {
  const char* part = "an exchange";
  const char* call = "";  // the name of the call that contains this exchange; may be empty
  std::uint32_t tag = 0;
  std::vector<std::int32_t> senders, takers;  // the senders and receivers of the messages that are not done
  detail::call_limits limits;
  bool is_over() const { return senders.empty() && takers.empty(); }
};

class engine : public std::enable_shared_from_this<engine> {
 public:
  engine(std::shared_ptr<segment> memory, std::int32_t rank, std::function<bool()> goes_on);
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  ~engine();

  std::int32_t rank() const { return rank_; }
  std::int32_t size() const { return size_; }

  /// Waits until every rank has joined. \errors as for shared_memory_communicator::join
  result<void> meet(const call_options& options);
  /// Returns the guard word. Peers read it after reading a message from this rank's memory; the message is valid only
  /// if the word is unchanged.
  const position& guard_word() const { return guard_; }
  /// Notifies the other ranks that the last handle of this rank is gone.
  void leave();

  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& options);
  result<std::shared_ptr<exchange>> start(std::span<const outgoing> sends, std::span<const incoming> receives,
                                          const call_options& options);
  bool would_not_block(const exchange& e);
  result<void> wait(exchange& e);
  void abort(const error& reason);
  result<void> status();
  const object_numbers& numbers() const { return numbers_; }

 private:
  using locker = std::unique_lock<std::mutex>;

  /// An outgoing message. The caller owns its bytes and keeps them until the exchange is over.
  struct leaving {
    std::shared_ptr<exchange> owner;
    frame head;
    std::span<const std::byte> bytes;
    bool is_headed = false;  // the head is written to the ring
  };
  /// A receive that waits for its message. In an all_gather the sender determines the size, and `grows` is the buffer.
  struct wanted {
    std::shared_ptr<exchange> owner;
    frame head;
    std::span<std::byte> room;
    std::vector<std::byte>* grows = nullptr;
  };
  /// A lent message that the receiver has not answered yet.
  struct lent {
    std::uint64_t number = 0;
    leaving what;
  };
  /// A message that arrived before its receive was started. A lent one has no bytes here.
  struct early {
    frame head;
    std::vector<std::byte> bytes;
    bool is_whole = false;
    std::optional<wanted> to;  // the receive, if it was started before the message was whole
  };
  /// The frame that has been read from the ring in part.
  struct arriving {
    frame head;
    std::span<std::byte> rest;
    std::optional<wanted> to;  // if empty, the bytes go to the last of `earlies` that has bytes
  };
  struct line {
    std::deque<leaving> sends;
    std::deque<wanted> receives;
    std::list<early> earlies;
    std::optional<arriving> now;
    std::vector<lent> lents;       // lent to the peer and announced in the ring
    std::uint64_t lent_count = 0;  // of `lents` and the lent messages in `sends`
    std::uint64_t answers_read = 0;
    std::deque<wanted> refuseds;  // for lent messages of the peer that could not be read, by `head.number`
    detail::peer_memory memory;   // of the peer
    void drop_messages() noexcept;
  };

  // Returns whether this is a forked child's copy: its rank belongs to the parent.
  bool is_forked() const;
  error of_another_process() const;  // the error of a call on such a copy
  // Runs `work`. An exception from it first poisons the group, so that nothing here refers to the caller's memory.
  template <class Work>
  auto guarded(locker& locked, const exchange& e, const Work& work) -> decltype(work());
  result<void> meet_all(const exchange& joining);

  // All of the following need the lock.
  result<void> begin_call(exchange& e, const call_options& options);
  void see_memory();
  void want(std::int32_t peer, wanted receive);
  bool fits(std::int32_t peer, const frame& head, const wanted& receive);
  void finish(std::int32_t peer, const wanted& receive);
  void poison(error reason) noexcept;
  bool progress();
  bool push(std::int32_t peer);
  bool pull(std::int32_t peer);
  void begin_frame(std::int32_t peer, const frame& head);
  bool pull_answers(std::int32_t peer);
  void answered(std::int32_t peer, const lent_answer& answer);
  void take_lent(std::int32_t peer, const frame& head, wanted receive);
  void answer(std::int32_t peer, const lent_answer& given);
  void end_frame(std::int32_t peer);
  result<void> wait_for(locker& locked, exchange& e);
  detail::call_identity identity_of(const exchange& e) const { return {rank_, e.part, e.call, e.tag}; }
  error ended_wait(const exchange& e, errc ended, std::vector<std::int32_t> senders,
                   std::vector<std::int32_t> takers) const;
  std::optional<std::int32_t> missing_of(const exchange& e, bool looks_at_life) const;
  line& of(std::int32_t peer) { return lines_[static_cast<std::size_t>(peer)]; }

  std::shared_ptr<segment> memory_;
  std::int32_t rank_ = 0, size_ = 0;
  std::mutex lock_;
  std::function<bool()> goes_on_;
  std::vector<line> lines_;  // by peer
  std::optional<error> poison_;
  std::int32_t waiting_ = 0;  // waiting threads of this rank
  object_numbers numbers_;
  std::uint64_t next_lent_ = 0;
  position guard_;  // random; 0 once poisoned. Peers check it after they have read this rank's memory
  detail::maker_process maker_;
};

}  // namespace shardmesh::shared_memory
