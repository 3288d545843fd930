// SPDX-License-Identifier: Apache-2.0
// The messages of one round in flight. The bytes either travel in packed messages, or peers read them in place. The
// workers choose the bytes (`host_worker`, `batch_worker`); a communicator moves them. Exports nothing.
module shardmesh.transfer:round_messages;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import :route;

namespace shardmesh {

enum class message_transport : std::uint8_t { exchange, lending };

// First list the messages and `start` them. Then `wait`, use what has arrived, `give_back`, and `wait_released`. A
// round without messages skips `start`; the other calls then do nothing. The destructor waits, so members that are
// declared before this object outlive the messages.
class round_messages {
 public:
  // `most` is the most messages of a round: listing them allocates nothing.
  round_messages(communicator_ref comm, message_transport transport, const message_counts& most);

  inline bool lends() const { return transport_ == message_transport::lending; }

  inline void clear() {
    outgoing_.clear();
    incoming_.clear();
    lent_.clear();
    borrowed_.clear();
  }
  // For an exchange. The memory must live until `wait` returns.
  void send(const message& m, const std::byte* from);
  void receive(const message& m, std::byte* to);
  // For a lending. The lender and its memory must live until `wait_released` returns.
  void lend(const message& m, const lender& pieces);
  void borrow(const message& m);
  result<void> start(const call_options& call);

  // Whether `wait` would return without blocking.
  inline bool are_ready() const { return lends() ? loan_.ready() : exchange_.done(); }
  // Waits until the received bytes are in place, or until the peers have lent their pieces.
  inline result<void> wait() { return lends() ? loan_.wait_ready() : exchange_.wait(); }
  // A borrowed piece of received message number `message`. Precondition: this is a lending, and `wait` has succeeded.
  inline const_tensor_view borrowed_piece(std::size_t message, std::size_t piece) const {
    return loan_.from(message).piece(piece);
  }
  // Fails if the reading of borrowed pieces must stop, because another rank failed or the call was cancelled.
  result<void> check_interruption();

  // Returns the borrowed pieces, so that the peers may change their memory. `wait_released` does this itself.
  inline void give_back() { loan_.give_back(); }
  // Whether `wait_released` would return without blocking.
  inline bool are_released() const { return loan_.done(); }
  // Waits until no peer reads this rank's memory any more.
  inline result<void> wait_released() { return loan_.wait(); }

  // Ends the messages of a communicator that was aborted: returns when no memory is in use.
  void end_aborted();

 private:
  communicator_ref comm_;
  message_transport transport_;
  // Declared before the messages in flight, which refer to them.
  std::vector<outgoing> outgoing_;
  std::vector<incoming> incoming_;
  std::vector<lent> lent_;
  std::vector<borrowed> borrowed_;
  pending exchange_;
  lending loan_;
};

}  // namespace shardmesh
