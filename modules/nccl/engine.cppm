// SPDX-License-Identifier: Apache-2.0
// engine: the state of an nccl_communicator: what is to be launched, what runs, when it is poisoned. NCCL is never
// called in a way that blocks: calls return at once and are asked about, in `advance`, under the lock.
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

// Where a call of NCCL is.
enum class stage {
  queued,     // behind others of this communicator
  launching,  // NCCL has it and has not put it on its stream yet
  running,    // on its stream; `finished` is behind it
  done,
};

// One exchange or collective.
struct operation {
  std::string what;  // "exchange of save", for errors
  std::uint32_t tag = 0;
  std::vector<std::int32_t> peers;  // whom it waits for, as far as that is known
  std::optional<clock::time_point> deadline;
  std::stop_token cancel;
  stream_ref stream;                                    // where it is put
  bool is_streamed = false;                             // the stream is the caller's, who does not wait for it
  std::function<int(void* comm, void* stream)> launch;  // calls of NCCL within a group; the first that fails

  stage at = stage::queued;
  cuda::event finished;
};

// What an engine is made of.
struct parts {
  cuda::runtime cuda;
  library nccl;
  device where;
  nccl_options options;
  cuda::stream stream;  // for calls without one
};

class engine : public std::enable_shared_from_this<engine> {
 public:
  // As `nccl_communicator::make`.
  static result<std::shared_ptr<engine>> make(communicator_ref control, device where, const nccl_options& options,
                                              const call_options& call);
  // `control` outlives it, or is the one that it owns.
  engine(parts made, communicator_ref control, void* comm);
  engine(parts made, any_communicator own_control, void* comm);
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  ~engine();

  inline std::int32_t rank() const { return rank_; }
  inline std::int32_t size() const { return size_; }
  inline const parts& made_of() const { return parts_; }
  inline communicator_ref control() const { return control_; }

  // A fork copied this engine, perhaps with its lock held: NCCL, CUDA and the peers are the parent's.
  inline bool is_forked() const { return !maker_.is_this(); }
  error of_another_process() const;  // says so

  // The poison of any rank; a deadline that has passed and a cancelled call poison.
  result<void> check_call(const call_options& options, const char* part);
  // errc::unsupported for an address that is not of this device's memory.
  result<void> check_memory(const std::byte* address, const char* part) const;
  // Launches, or queues behind what is being launched.
  result<pending> start(std::shared_ptr<operation> op, const call_options& options);
  bool would_not_block(operation& op);
  result<void> wait(operation& op);

  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& options);
  // A communicator of those that give the same color; null for `no_color`.
  result<std::shared_ptr<engine>> split(std::int32_t color, std::int32_t key, const call_options& options);
  // Communicators of groups, by the group of every rank, for as long as this lives.
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

  // All with the lock held.
  void advance();
  void launch(operation& op);
  result<void> mark(operation& op);
  void look(clock::duration at_most_every);  // at errors of NCCL, and of other ranks
  bool is_over(operation& op);               // it runs no more; or fails, which poisons
  void check_limits(const operation& op);    // its deadline, and whether it is cancelled
  void poison(error reason, bool tells);
  void close();

  // Without it.
  void settle(operation& op);  // until no kernel touches the memory of an aborted operation
  void watch(const std::stop_token& stop);

  detail::maker_process maker_;
  parts parts_;
  std::optional<any_communicator> own_control_;
  communicator_ref control_;
  communicator_ref told_by_;  // where other ranks' errors are heard: may be asked from any thread
  std::int32_t rank_ = 0, size_ = 1;

  std::mutex lock_;
  void* comm_ = nullptr;  // null: aborted
  std::optional<error> poison_;
  std::deque<std::shared_ptr<operation>> queue_;      // the first may be launching
  std::vector<std::shared_ptr<operation>> streamed_;  // that run on callers' streams
  std::vector<cuda::event> idle_events_;
  cuda::event before_;  // what the default stream has in front of a call without a stream
  clock::time_point asked_control_{};
  object_numbers numbers_;
  std::map<std::vector<std::int32_t>, std::unique_ptr<nccl_communicator>> groups_;

  std::condition_variable_any has_streamed_;
  std::jthread watcher_;  // the last: it ends first
};

// Polls, at first eagerly.
class patience {
 public:
  void rest();

 private:
  int rounds_ = 0;
};

// The deadline of a call: its own, or that of the options' patience.
std::optional<clock::time_point> deadline_of(const call_options& call, const nccl_options& options);

// Polls until a call on `comm` is over that was in progress; `heard` is asked what other ranks say. Without a deadline
// of the call, the options' patience counts.
result<void> finish_call(const parts& made, void* comm, std::string_view what, const call_options& call,
                         function_ref<result<void>()> heard);

// What other ranks say: the poison of a communicator. May be asked from any thread.
result<void> heard_from(communicator_ref told_by);
// The communicator of all ranks that a control communicator is made of: a subgroup is not for several threads.
communicator_ref told_by(communicator_ref control);

}  // namespace shardmesh::nccl
