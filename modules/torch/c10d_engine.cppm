// SPDX-License-Identifier: Apache-2.0
// c10d_engine: the state of a c10d_communicator. A record of fixed size announces each message. One thread receives
// records from any rank, a second receives payloads, and a third waits for sends. Thus messages are matched by all 32
// bits of their tags, sizes are compared, and a rank's error reaches ranks that wait for others. The calls of c10d are
// in c10d_channel.
module;
#include <process_token.hpp>
#include <torch/c10d_channel.hpp>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>
module shardmesh.torch:c10d_engine;

import shardmesh.comm;

namespace shardmesh::c10d_detail {

enum class record_kind : std::uint32_t {
  message,  // of an exchange
  gather,   // part of an all_gather
  taken,    // the receiver has the payload with that number
  poison,   // the sender's error
  goodbye,  // the sender's last record: it has released its communicator
};

/// Announces a message. A short message lies in the record. A longer one is a separate payload, whose tag follows from
/// its number.
struct record {
  std::uint32_t version = 2;  // this and `kind` have these places in every version
  record_kind kind = record_kind::message;
  std::uint32_t tag = 0;
  std::uint32_t number = 0;  // counts the payloads from this sender to this receiver
  std::uint64_t size_bytes = 0;
  std::array<char, 24> call{};  // `call_options::name` of the sender, cut; for errors
  std::array<std::byte, 208> inside{};
};
static_assert(sizeof(record) == 256);

/// The index of the tag for records: the last of the 2^20 c10d tags of a communicator.
inline constexpr std::int32_t record_slot = (1 << 20) - 1;

/// Identifies a message in errors.
struct message_name {
  record_kind kind = record_kind::message;
  std::uint32_t tag = 0;
  std::array<char, 24> call{};
};
inline message_name named(const record& head) {
  return {head.kind, head.tag, head.call};
}

/// The last message from a peer.
struct last_words {
  std::optional<std::chrono::steady_clock::time_point> at;
  std::array<char, 24> call{};
  bool in_gather = false;
};

/// An exchange, or an all_gather, that has started.
struct exchange {
  const char* part = "an exchange";
  const char* call = "";  // the call that contains it
  std::uint32_t tag = 0;
  std::vector<std::int32_t> senders, takers;  // peers of unfinished messages
  detail::call_limits limits;
  bool is_over() const { return senders.empty() && takers.empty(); }
};

class engine : public std::enable_shared_from_this<engine> {
 public:
  /// Returns whether this process is a fork whose parent has made communicators, so that the process groups are copies.
  static bool groups_are_of_parent();
  /// Throws std::length_error if the communicator that the group made 1024 earlier, with the same tags, still lives in
  /// this process.
  explicit engine(std::shared_ptr<channel> group);
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  ~engine();

  /// Starts the threads, which keep the engine alive until every rank has said goodbye. Throws std::system_error if a
  /// thread cannot start; the other ranks are notified.
  void begin();
  /// Notifies the other ranks that the last handle is gone.
  void leave();

  std::int32_t rank() const { return group_->rank(); }
  std::int32_t size() const { return group_->size(); }
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& options);
  result<std::shared_ptr<exchange>> start(std::span<const outgoing> sends, std::span<const incoming> receives,
                                          const call_options& options);
  bool would_not_block(const exchange& e);
  result<void> wait(exchange& e);
  void abort(error reason);
  result<void> status();
  const object_numbers& numbers() const { return numbers_; }

 private:
  using guard = std::unique_lock<std::mutex>;

  /// A receive that has started. `grows`: set for an all_gather, in which the sender chooses the size.
  struct expected {
    std::shared_ptr<exchange> owner;
    std::span<std::byte> room;
    std::vector<std::byte>* grows = nullptr;
  };
  struct line {
    std::deque<expected> receives;
    std::deque<record> announced;
  };
  struct payload_sent {
    std::shared_ptr<exchange> owner;
    message_name name;
    std::unique_ptr<transfer> moving;
  };
  /// A record or a payload whose bytes are kept until it has been sent.
  struct departing {
    std::unique_ptr<transfer> moving;
    std::int32_t peer = 0;
    message_name name;
  };
  struct payload_coming {
    std::unique_ptr<transfer> moving;
    std::int32_t peer = 0;
    record head;
    expected to;
  };

  // Calls. The lock is held in all of these.
  result<void> begin_call(exchange& e, const call_options& options);
  void expect(std::int32_t peer, bool is_gather, expected receive);
  void announce(std::int32_t peer, record_kind kind, std::span<const std::byte> bytes,
                const std::shared_ptr<exchange>& owner);
  std::uint32_t free_number(std::int32_t peer);
  void send_record(std::int32_t peer, const record& head);
  void match(std::int32_t peer, const record& head, expected receive);
  void take(std::int32_t peer, const record& head, expected& receive, std::span<const std::byte> bytes);
  void poison(error reason, bool tells_peers) noexcept;
  void tell_peers();
  result<void> wait_for(guard& locked, exchange& e);
  detail::call_identity identity_of(const exchange& e) const { return {rank(), e.part, e.call, e.tag}; }
  error ended_wait(const exchange& e, errc ended) const;
  std::string last_heard(std::span<const std::int32_t> ranks) const;

  std::int32_t payload_tag(std::uint32_t number) const {
    return base_tag_ + static_cast<std::int32_t>(number % static_cast<std::uint32_t>(record_slot));
  }
  // Returns the error for an exception of c10d. `verb`: "sends to" or "receives from"; peer -1: any rank.
  error channel_problem(const std::exception& problem, const char* verb, std::int32_t peer,
                        const message_name& name) const noexcept;

  // Returns whether a fork copied this engine, without its threads.
  bool is_forked() const;
  void give_back_tags() noexcept;
  error of_another_process() const;
  // Runs `work` of a call. An exception becomes the error of every rank, so that the engine no longer refers to the
  // call's memory.
  template <class Work>
  auto guarded(const exchange& e, const Work& work) -> decltype(work());
  error let_go(std::int32_t peer) const;
  void see_off(std::int32_t peer);
  /// True when nothing more arrives and no call is open.
  bool is_closed() const { return is_left_ && gone_.size() + 1 == static_cast<std::size_t>(size()); }

  // The threads.
  void say_goodbye();
  void give_up_threads();
  void forget_peers();
  void receive_records();
  void receive_payloads();
  void finish_sends();
  void heard(std::int32_t peer, const record& head);
  void handle(std::int32_t peer, const record& head);

  std::shared_ptr<channel> group_;
  std::int32_t base_tag_ = 0;

  std::mutex lock_;
  std::condition_variable_any changed_;
  std::optional<error> poison_;
  bool has_told_ = false;         // sent the error to every rank
  bool error_is_coming_ = false;  // a rank has announced its error
  object_numbers numbers_;
  std::vector<std::uint32_t> payloads_;  // next number, per receiver
  std::vector<last_words> heard_;        // per rank
  // by peer, tag, and whether it is an all_gather
  std::map<std::tuple<std::int32_t, std::uint32_t, bool>, line> lines_;
  std::map<std::pair<std::int32_t, std::uint32_t>, payload_sent> sent_;  // by peer and number, until it is taken
  std::deque<payload_coming> coming_;
  std::deque<departing> to_finish_;
  std::vector<std::int32_t> gone_;  // ranks that have said goodbye
  bool is_left_ = false;
  detail::maker_process maker_;
};

}  // namespace shardmesh::c10d_detail
