// SPDX-License-Identifier: Apache-2.0
// engine: the state of an nccl_communicator: queued and running operations, and poison. Calls of NCCL never block: they
// return at once, and `advance` polls them under the lock.
module;
#include "includes.hpp"
module shardmesh.nccl:engine;

import shardmesh.core;
import shardmesh.comm;
import shardmesh.cuda;
import :functions;
import :library;
import :nccl_communicator;

namespace shardmesh::nccl {

using clock = std::chrono::steady_clock;

// The progress of a call of NCCL.
enum class stage {
  queued,     // behind other calls of this communicator
  launching,  // passed to NCCL, which has not enqueued it on its stream yet
  running,    // on its stream, followed by the event `finished`
  done,
};

// One exchange or collective.
struct operation {
  std::string what;  // "exchange of save", for errors
  std::uint32_t tag = 0;
  std::vector<std::int32_t> senders, takers;  // the peers of its messages; none for a collective
  detail::call_limits limits;
  stream_ref stream;                                    // the stream on which it is enqueued
  bool is_streamed = false;                             // the stream is the caller's; `wait` does not wait for the work
  std::function<int(void* comm, void* stream)> launch;  // calls NCCL within a group; returns the first error code

  stage at = stage::queued;
  cuda::event finished;
};

// The resources of an engine.
struct parts {
  cuda::runtime cuda;
  library nccl;
  device where;
  nccl_options options;
  cuda::stream stream;  // for calls without a stream of their own
};

class engine : public std::enable_shared_from_this<engine> {
 public:
  // Makes an engine, as `nccl_communicator::make` describes.
  static result<std::shared_ptr<engine>> make(communicator_ref control, device where, const nccl_options& options,
                                              const call_options& call);
  // Either `control` outlives the engine, or the engine owns it.
  engine(parts made, communicator_ref control, void* comm);
  engine(parts made, any_communicator own_control, void* comm);
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  ~engine();

  inline std::int32_t rank() const { return rank_; }
  inline std::int32_t size() const { return size_; }
  inline const parts& made_of() const { return parts_; }
  inline communicator_ref control() const { return control_; }

  // Returns whether this is a forked child's copy: NCCL, CUDA, and the peers belong to the parent, and the lock may be
  // held.
  inline bool is_forked() const { return !maker_.is_this(); }
  error of_another_process() const;  // the error of a call on such a copy

  // Returns the error that poisoned the communicator, on whatever rank. A missed deadline or a cancelled call poisons
  // it.
  result<void> check_call(const call_options& options, const char* part);
  // Returns errc::unsupported for an address outside this device's memory.
  result<void> check_memory(const std::byte* address, const char* part) const;
  // Launches an operation, or queues it behind the one that is being launched.
  result<pending> start(std::shared_ptr<operation> op, const call_options& options);
  bool would_not_block(operation& op);
  result<void> wait(operation& op);

  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& options);
  // Makes a communicator of the ranks with the same color; null for `no_color`.
  result<std::shared_ptr<engine>> split(std::int32_t color, std::int32_t key, const call_options& options);
  // The communicators of groups, keyed by the group of every rank. They live as long as this engine.
  nccl_communicator* kept_group(std::span<const std::int32_t> group_of);
  nccl_communicator* keep_group(std::span<const std::int32_t> group_of, nccl_communicator group);
  result<void*> register_memory(std::span<std::byte> memory);
  void deregister(void* handle);

  void abort(const error& reason);
  result<void> status();
  const object_numbers& numbers() const { return numbers_; }

 private:
  using guard = std::unique_lock<std::mutex>;
  static result<std::shared_ptr<engine>> finished(std::shared_ptr<engine> made);

  // All of these need the lock.
  void advance();
  void launch(operation& op);
  result<void> mark(operation& op);
  void look(clock::duration at_most_every);  // checks for errors of NCCL and of other ranks
  bool is_over(operation& op);               // whether it has finished; a failure poisons
  void check_limits(const operation& op);    // checks its deadline and cancellation
  void poison(error reason, bool tells);
  void close();

  // These take the lock themselves.
  void settle(operation& op);  // waits until no kernel touches the memory of an aborted operation
  void watch(const std::stop_token& stop);

  detail::maker_process maker_;
  parts parts_;
  std::optional<any_communicator> own_control_;
  communicator_ref control_;
  communicator_ref told_by_;  // reports other ranks' errors; thread-safe
  std::int32_t rank_ = 0, size_ = 1;

  std::mutex lock_;
  void* comm_ = nullptr;  // null: aborted
  std::optional<error> poison_;
  std::deque<std::shared_ptr<operation>> queue_;      // the first may be launching
  std::vector<std::shared_ptr<operation>> streamed_;  // running on callers' streams
  std::vector<cuda::event> idle_events_;
  cuda::event before_;  // recorded on the default stream; a call without a stream begins after it
  clock::time_point asked_control_{};
  object_numbers numbers_;
  std::map<std::vector<std::int32_t>, std::unique_ptr<nccl_communicator>> groups_;

  std::condition_variable_any has_streamed_;
  std::jthread watcher_;  // the last member, so that it ends first
};

// The pauses between the polls of a wait: none at first, then longer ones.
class patience {
 public:
  void rest();

 private:
  int rounds_ = 0;
};

// Returns the limits of a call that begins now. Its deadline is its own, or else the one from the options' patience.
detail::call_limits limits_of(const call_options& call, const nccl_options& options);

// Polls until the call in progress on `comm` is over. `heard` returns the errors of other ranks. If the call has no
// deadline, the options' patience applies.
result<void> finish_call(const parts& made, void* comm, std::string_view what, std::int32_t rank,
                         const call_options& call, function_ref<result<void>()> heard);

// Returns the error that poisoned a communicator, possibly another rank's. Thread-safe if the communicator is.
result<void> heard_from(communicator_ref told_by);
// Returns the thread-safe communicator behind a control communicator: for a subgroup, the whole group's.
communicator_ref told_by(communicator_ref control);

}  // namespace shardmesh::nccl
