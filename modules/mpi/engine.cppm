// SPDX-License-Identifier: Apache-2.0
// engine: the state of an mpi_communicator: open messages, their progress, and poison. Everything moves in `progress`,
// which every call and every wait runs under the lock.
module;
#include "includes.hpp"
module shardmesh.mpi:engine;

import shardmesh.comm;
import :control;
import :mpi_communicator;
import :record;
import :session;
import :staged;

namespace shardmesh::mpi {

using detail::machine_identity;
using detail::peer_memory;
using detail::read_outcome;
using detail::this_machine;

/// One started exchange.
struct exchange {
  std::int64_t open = 0;    // messages that are not done
  std::uint64_t event = 0;  // its number in the trace
  std::uint32_t tag = 0;
  const char* call = "";  // the name of the call that it is part of; may be empty
  bool is_gather = false;
  detail::call_limits limits;
};

/// Names an exchange in errors: "an exchange of save".
std::string name_of(const exchange& e);

struct outgoing_message {
  std::int32_t peer = 0;
  std::span<const std::byte> bytes = {};
  std::shared_ptr<exchange> owner = {};
};

struct incoming_message {
  std::int32_t peer = 0;
  std::span<std::byte> bytes = {};
  std::shared_ptr<exchange> owner = {};
  std::vector<std::byte>* grows = nullptr;  // the buffer in an all_gather, where the sender determines the size
  std::uint64_t sender_id = 0;              // once matched
  std::uint64_t address = 0;
  std::size_t read_bytes = 0;
  int channel = 0;  // the channel of a pushed message; 0: not pushed
};

/// The latest message from a peer: when it arrived, and from which call.
struct last_words {
  std::optional<std::chrono::steady_clock::time_point> at;
  std::array<char, 24> call{};
  bool in_gather = false;
};

/// The unmatched messages of a (peer, tag), in call order. At most one of the two queues is not empty.
struct message_line {
  struct announcement {
    record_head head;
    std::vector<std::byte> bytes;
  };
  std::deque<std::uint64_t> receives;  // ids
  std::deque<announcement> announced;
};

class engine {
 public:
  /// Makes an engine over a duplicate of `parent`. Collective over `parent`.
  static result<std::shared_ptr<engine>> make(std::shared_ptr<session> session, MPI_Comm parent,
                                              const mpi_options& options);
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  ~engine();

  inline std::int32_t rank() const { return rank_; }
  inline std::int32_t size() const { return size_; }
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& options);
  result<std::shared_ptr<exchange>> start(std::span<const outgoing> sends, std::span<const incoming> receives,
                                          const call_options& options);
  bool would_not_block(const exchange& e);
  result<void> wait(exchange& e);
  void abort(error reason);
  result<void> status();
  std::int32_t readable_peers() const;
  std::string trace();
  const object_numbers& numbers() const { return numbers_; }

 private:
  using clock = std::chrono::steady_clock;
  using guard = std::unique_lock<std::mutex>;
  inline explicit engine(std::shared_ptr<session> session) : session_(std::move(session)) {}
  result<void> open(MPI_Comm parent, const mpi_options& options);
  error of_another_process() const;
  // Runs `work` of a call. An exception poisons the communicator, so that nothing here refers to the call's memory
  // afterwards.
  template <class Work>
  auto guarded(guard& locked, const exchange& e, const Work& work) -> decltype(work());
  void give_up(guard& locked, const exchange& e, const std::exception& thrown);
  // Adds the peer and the call to an MPI error. `verb`: "cannot send to" or "cannot receive from".
  error failed(error why, const char* verb, std::int32_t peer, const exchange& e) const;
  error failed_sending(error why, std::uint64_t id) const;

  // engine.cpp: calls. All of these need the lock.
  result<void> begin_call(exchange& e, const call_options& options);
  result<void> wait_for(guard& locked, exchange& e);
  void poison(error reason, bool doubt, bool tell_peers) noexcept;
  void flush(std::chrono::milliseconds most);
  void end_transfers();
  std::vector<std::int32_t> waited_for(const exchange& e, bool sends) const;
  error ended_wait(const exchange& e, errc ended) const;
  std::string last_heard(std::span<const std::int32_t> ranks) const;
  void watch_peers(const exchange& e);

  // progress.cpp: messages.
  void expect(incoming_message message);
  void announce(outgoing_message message);
  bool progress();
  result<bool> try_progress();
  void handle(std::int32_t peer, const record_head& head, std::span<const std::byte> bytes);
  void match(std::int32_t peer, std::uint64_t id, const record_head& head, std::span<const std::byte> bytes);
  // Sends a record on behalf of `e`, which an error names.
  void send(std::int32_t peer, const record_head& head, const exchange& e, std::span<const std::byte> bytes = {});
  int push(const outgoing_message& message, std::uint64_t id);
  void taken(std::uint64_t id);
  void sent(std::uint64_t id);
  bool read_some();
  result<bool> step_staged();

  std::shared_ptr<session> session_;
  MPI_Comm control_comm_ = MPI_COMM_NULL, data_comm_ = MPI_COMM_NULL;
  std::int32_t rank_ = 0, size_ = 1;
  std::vector<peer_memory> peers_;
  std::vector<last_words> heard_;              // per rank
  std::atomic<std::uint64_t> guard_word_ = 0;  // peers read it; while it is unchanged, the messages here are valid

  std::mutex lock_;
  std::optional<error> poison_;
  trace_ring trace_;
  object_numbers numbers_;
  std::optional<control_channel> control_;
  std::uint64_t next_id_ = 1;
  std::unordered_map<std::uint64_t, outgoing_message> outgoing_;
  std::unordered_map<std::uint64_t, incoming_message> incoming_;
  std::unordered_map<std::uint64_t, message_line> lines_;  // by peer and tag

  // Matched receives, by their next step: read the peer's memory, or grant a channel (an index of `receiving_`).
  std::deque<std::uint64_t> reading_, to_grant_;
  struct transfer {
    std::uint64_t id = 0;  // 0: none
    std::optional<staged_transfer> moving;
  };
  std::optional<staging_pool> pool_;
  std::deque<transfer> receiving_, sending_;
  std::deque<transfer> pushing_;  // sent without a grant; an entry is occupied until the receiver has the message
  struct granted {
    std::uint64_t id = 0;
    int channel = 0;
  };
  std::deque<granted> to_send_;
  abandoned_memory abandoned_;
  std::map<std::int32_t, clock::time_point> suspects_;
};

template <class Work>
auto engine::guarded(guard& locked, const exchange& e, const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception& thrown) {
    give_up(locked, e, thrown);
  }
  return *poison_;
}

}  // namespace shardmesh::mpi
