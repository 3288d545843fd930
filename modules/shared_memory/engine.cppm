// SPDX-License-Identifier: Apache-2.0
// engine: the state of a shared_memory_communicator. A message is a frame in the ring of its pair of ranks: a head,
// then its bytes. Frames move while a rank is in a call. One lock guards everything. Not here: rings and bells
// (segment).
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
  message,  // of an exchange
  gather,   // a part of an all_gather
  lent,     // a message of an exchange whose bytes lie with the sender; answered beside the ring
  again,    // the bytes of a lent message that the receiver could not read
};

struct frame {
  frame_kind kind = frame_kind::message;
  std::uint32_t tag = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t address = 0;  // of a lent message
  std::uint64_t number = 0;   // of a lent message, in the order of this sender's
  bool has_bytes() const {
    return kind == frame_kind::message || kind == frame_kind::gather || kind == frame_kind::again;
  }
};

/// From how many bytes on a message is lent (to a peer with fewer than `most_lent` of them): below, two copies cost
/// less than telling and answering.
inline constexpr std::size_t lent_bytes = 32 << 10;

/// One started exchange, or an all_gather.
struct exchange {
  const char* part = "an exchange";
  const char* call = "";  // that it is part of
  std::uint32_t tag = 0;
  std::vector<std::int32_t> givers, takers;  // messages that are not done
  std::optional<std::chrono::steady_clock::time_point> deadline;
  std::stop_token cancel;
  bool is_over() const { return givers.empty() && takers.empty(); }
};

class engine : public std::enable_shared_from_this<engine> {
 public:
  engine(std::shared_ptr<segment> memory, std::int32_t rank, std::function<bool()> goes_on);
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  ~engine();

  std::int32_t rank() const { return rank_; }
  std::int32_t size() const { return size_; }

  /// Every rank has joined. \errors as of shared_memory_communicator::join
  result<void> meet(const call_options& options);
  /// What others read after this rank's memory: while it is unchanged, what they read is a message.
  const position& guard_word() const { return guard_; }
  /// The last handle is gone: the others know.
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

  /// What leaves; its bytes are the caller's until its exchange is over.
  struct leaving {
    std::shared_ptr<exchange> owner;
    frame head;
    std::span<const std::byte> bytes;
    bool is_headed = false;  // the head is in the ring
  };
  /// Where a message is wanted. `grows` of an all_gather: the sender says how much.
  struct wanted {
    std::shared_ptr<exchange> owner;
    frame head;
    std::span<std::byte> room;
    std::vector<std::byte>* grows = nullptr;
  };
  /// A message that the receiver has not taken yet.
  struct lent {
    std::uint64_t number = 0;
    leaving what;
  };
  /// A message that came before it was wanted. Of a lent one there are no bytes here.
  struct early {
    frame head;
    std::vector<std::byte> bytes;
    bool is_whole = false;
    std::optional<wanted> to;  // wanted before it was whole
  };
  /// The frame of which a ring is in the middle.
  struct arriving {
    frame head;
    std::span<std::byte> rest;
    std::optional<wanted> to;  // else it is the last of `earlies`
  };
  struct line {
    std::deque<leaving> sends;
    std::deque<wanted> receives;
    std::list<early> earlies;
    std::optional<arriving> now;
    std::vector<lent> lents;       // to the peer
    std::uint64_t lent_count = 0;  // of them and of those in `sends`
    std::uint64_t answers_read = 0;
    std::deque<wanted> refuseds;  // of the peer's lents; their heads' numbers say which
    detail::peer_memory memory;   // of the peer
    void drop_messages() noexcept;
  };

  // A fork copied this engine: its rank is the parent's.
  bool is_forked() const;
  error of_another_process() const;  // says so
  // Runs `work`. An exception from it poisons before it leaves, so that nothing here refers to the caller's memory.
  template <class Work>
  auto guarded(locker& locked, const exchange& e, const Work& work) -> decltype(work());
  result<void> meet_all(const call_options& options);

  // With the lock held.
  result<void> check_call(const exchange& e, const call_options& options);
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
  error waited_in_vain(std::string_view part, std::uint32_t tag, std::vector<std::int32_t> givers,
                       std::vector<std::int32_t> takers) const;
  std::optional<std::int32_t> missing_of(const exchange& e, bool looks_at_life) const;
  line& of(std::int32_t peer) { return lines_[static_cast<std::size_t>(peer)]; }

  std::shared_ptr<segment> memory_;
  std::int32_t rank_ = 0, size_ = 0;
  std::mutex lock_;
  std::function<bool()> goes_on_;
  std::vector<line> lines_;  // by peer
  std::optional<error> poison_;
  std::int32_t waiting_ = 0;  // threads of this rank
  object_numbers numbers_;
  std::uint64_t next_lent_ = 0;
  position guard_;  // random, 0 from the poison on: peers that read this rank's memory look at it afterwards
  detail::maker_process maker_;
};

}  // namespace shardmesh::shared_memory
