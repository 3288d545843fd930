// SPDX-License-Identifier: Apache-2.0
// The state of a run of an executor: its memory and its progress. Exports nothing.
module shardmesh.transfer:run;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import shardmesh.kernels;
import :batched_work;
import :binding;
import :bound_memory;
import :collective;
import :executor;
import :plan;
import :rank_plan;
import :route;
import :slab_walk;
import :step;

namespace shardmesh {

// Memory that grows to the largest requested size and keeps it.
class scratch {
 public:
  result<std::byte*> reserve(std::int64_t size_bytes);
  std::int64_t capacity() const { return capacity_; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::int64_t capacity_ = 0;
};

enum class run_stage : std::uint8_t { begin, wait, read };

struct executor::state {
  // Lends the pieces of one message to a peer.
  struct message_lender final : lender {
    const_tensor_view piece(std::size_t index) const override {
      return self->source_of(round->outgoing[first + index], rounded);
    }
    const state* self = nullptr;
    const message_round* round = nullptr;
    std::size_t first = 0;
    bool rounded = false;
  };

  state(transfer_plan p, const rank_plan& mine, communicator_ref c, std::vector<std::string> transfer_names,
        const run_options& o, bool lend, held_number number, std::int64_t rounds,
        std::vector<collective_use> collectives, std::vector<communicator_ref> groups,
        std::shared_ptr<kernel_backend> backend);
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  ~state();

  // Checks the bindings and prepares the run.
  result<void> begin(std::span<const const_tensor_binding> from, std::span<const tensor_binding> to,
                     const call_options& options);
  // Advances the run. Returns nothing if it would have to block and may not. After an error or a callback's exception,
  // the communicator is aborted and nothing is in flight.
  std::optional<result<void>> advance_safely(bool may_block);

  transfer_plan plan;
  std::int64_t rounds = 1;
  std::int64_t moved_bytes = 0;  // by all ranks
  std::int64_t peak_bytes() const { return route_.peak_bytes; }
  std::int64_t scratch_bytes() const { return batched_ ? batched_->scratch_bytes() : scratch_.capacity(); }
  const rank_plan& steps() const { return route_.steps; }
  communicator_ref communicator() const { return comm_; }

 private:
  result<bool> advance(bool may_block);
  result<bool> end(bool may_block);
  result<bool> advance_collectives(bool may_block);
  result<void> begin_slab(const collective_use& use);
  result<void> end_slab(const collective_use& use);
  result<pending> start_collective(const collective_use& use, dtype type, std::span<const std::byte> send,
                                   std::span<std::byte> receive) const;
  tensor_view target_block(const collective_use& use, std::int64_t b) const;
  template <tensor_view_type View>
  View block_of(const View& slot, const collective_use& use, bool is_source, std::int64_t b) const;
  result<void> begin_round(const message_round& round);
  result<void> begin_lending(const message_round& round);
  result<void> begin_exchange(const message_round& round);
  result<void> begin_batched_exchange(const message_round& round);
  result<void> pack(const message_round& round, const message& m, std::byte* to);
  bool is_on_users_stream() const { return call_.stream.handle != nullptr; }
  bool is_on_stream() const { return batched_ && batched_->stream.handle != nullptr; }
  // The run's options, with the run's stream.
  call_options stream_call() const {
    call_options made = call_;
    if (batched_) made.stream = batched_->stream;
    return made;
  }
  bool is_ready() const { return lends_ ? loan_.ready() : exchange_.done(); }
  result<void> wait_for_messages() { return lends_ ? loan_.wait_ready() : exchange_.wait(); }
  result<void> read_round(const message_round& round);
  result<void> work_through(std::span<const task> tasks);
  result<void> work_between(const batch_route& batch);  // after the first round's messages
  result<void> work_at_end(const batch_route& batch);   // after the second round's messages
  // With a backend, these functions prepare tables of the whole route's work and launch its stages. The tables are
  // prepared again if the shapes of the memory change.
  result<void> prepare_batches();
  result<void> prepare_route(batched_route& made);
  result<void> open_launches();
  result<void> prepare_round(const message_round& round, bool rounded, batched_round& made, std::int64_t& room);
  result<void> launch(const batched_stage& stage);
  result<void> mark_end();
  result<bool> drain(bool may_block);
  result<void> wait_for_latest_run();
  void finish_stream();  // after a failure: returns when nothing touches memory any more
  const std::byte* straight_source(const task& piece) const;
  placed_view placed(const task& work, const step& s, bool is_target, bool rounded) const;
  result<void> carry_out(const task& work, const step& s, const const_tensor_view& from);
  result<void> round_sums(const batch_route& batch);
  result<void> check_interruption(std::int64_t bytes);
  result<void> check_call() const;
  error at(error e, const task& work, const step& s) const;
  void report(std::int64_t bytes) const {
    if (options_.progress) options_.progress(bytes);
  }

  // The memory that a step reads and writes. Staging holds sums until they are rounded, and elements of the source's
  // type afterwards.
  const_tensor_view source_of(const task& work, bool rounded) const { return source_of(work, step_of(work), rounded); }
  const_tensor_view source_of(const task& work, const step& s, bool rounded) const;
  tensor_view target_of(const task& work, const step& s, bool rounded) const;
  tensor_view staging_of(const task& work, const step& s, bool rounded) const;
  step step_of(const task& work) const { return route_.step_of(work); }
  // A message of one piece that has its wire form in memory is neither packed nor unpacked.
  bool is_sent_directly(const message_round& round, const message& m) const;
  bool is_received_directly(const message_round& round, const message& m) const;
  std::int64_t packed_bytes(const message_round& round) const;

  communicator_ref comm_;
  std::vector<std::string> names_;
  run_options options_;
  bool lends_ = false;
  held_number number_;
  route route_;
  bound_memory memory_;
  std::vector<collective_use> collectives_;
  std::vector<communicator_ref> groups_;  // for collectives among some of the ranks
  std::optional<batched_work> batched_;   // none: the host's kernels, piece by piece

  // The current run.
  call_options call_;
  bool running_ = false;
  bool delivers_ = false;  // the batch is in its second round
  run_stage stage_ = run_stage::begin;
  std::size_t batch_ = 0;
  std::size_t collective_ = 0;
  std::optional<slab_walk> slabs_;    // of the current collective
  std::int64_t collective_room_ = 0;  // bytes of a packed slab and its landing buffer
  box slab_;
  bool in_slab_ = false;
  std::byte* landing_ = nullptr;  // the address at which the slab arrives
  bool draining_ = false;
  std::vector<std::function<void()>> written_;  // to call when the destinations are complete
  std::int64_t unchecked_bytes_ = 0;
  std::int64_t unchecked_tasks_ = 0;

  // Declared before the members of messages in flight, so that it outlives them.
  scratch scratch_;  // of a batch: staging, then the messages of one of its rounds
  std::byte* staging_ = nullptr;
  std::vector<std::byte*> arrived_;  // per message of the round; null: straight into its target
  std::vector<message_lender> lenders_;
  std::vector<outgoing> outgoing_;
  std::vector<incoming> incoming_;
  std::vector<lent> lent_;
  std::vector<borrowed> borrowed_;
  pending exchange_;
  lending loan_;
};

}  // namespace shardmesh
