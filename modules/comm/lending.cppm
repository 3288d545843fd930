// SPDX-License-Identifier: Apache-2.0
// lending: ranks that share an address space read each other's memory in place, so a strided piece is copied once
// instead of packed, sent and unpacked. Not here: which pieces (transfer), messages of bytes (communicator).
export module shardmesh.comm:lending;

import shardmesh.std;
import shardmesh.core;
import :communicator;

export namespace shardmesh {

/// What a rank lets a peer read: numbered pieces of its memory. Called from the peer's thread.
struct lender {
  virtual ~lender() = default;
  /// Piece `index`, host memory. Precondition: both ranks agree that it exists.
  virtual const_tensor_view piece(std::size_t index) const = 0;
};

/// Pieces for a peer; `size_bytes` (more than 0) must be what the peer expects. The lender and its memory stay as they
/// are until the lending is waited for.
struct lent {
  std::int32_t peer = 0;
  const lender* pieces = nullptr;
  std::int64_t size_bytes = 0;
};

/// Pieces expected from a peer.
struct borrowed {
  std::int32_t peer = 0;
  std::int64_t size_bytes = 0;
};

/// A lending that was started. Move-only. Wait for the peers (`wait_ready`), read what they lend (`from`), then `wait`:
/// it gives back what this rank borrowed and returns when the peers have given back what it lent.
class lending {
 public:
  /// What an implementation provides. `wait` is called at most once, `from` only after `wait_ready` succeeded.
  struct operation {
    virtual ~operation() = default;
    virtual bool ready() = 0;
    virtual result<void> wait_ready() = 0;
    virtual const lender& from(std::size_t receive) const = 0;
    virtual bool interrupted() = 0;
    virtual void give_back() = 0;
    virtual bool done() = 0;
    virtual result<void> wait() = 0;
  };

  /// Nothing was lent or borrowed.
  lending() = default;
  explicit lending(std::unique_ptr<operation> work) : work_(std::move(work)) {}
  lending(lending&&) noexcept = default;
  lending& operator=(lending&& other) noexcept {
    if (this != &other) {
      finish();
      work_ = std::move(other.work_);
    }
    return *this;
  }
  ~lending() { finish(); }

  /// True when `wait_ready` would not block.
  bool ready() const { return !work_ || work_->ready(); }
  /// Blocks until every peer has lent its pieces (or the communicator is poisoned).
  result<void> wait_ready() { return work_ ? work_->wait_ready() : result<void>{}; }
  /// What the peer of receive number `receive` lends. Precondition: `wait_ready` succeeded, `wait` was not called.
  const lender& from(std::size_t receive) const { return std::as_const(*work_).from(receive); }
  /// True when the communicator was poisoned meanwhile, or the call cancelled: the reader should stop soon.
  bool interrupted() const { return work_ && work_->interrupted(); }
  /// The reader has all it needs: the peers may change their memory.
  void give_back() {
    if (work_) work_->give_back();
  }
  /// True when `wait` would not block (after `give_back`).
  bool done() const { return !work_ || work_->done(); }
  result<void> wait() {
    const auto work = std::exchange(work_, nullptr);
    return work ? work->wait() : result<void>{};
  }

 private:
  void finish() {
    if (work_) static_cast<void>(wait());
  }
  std::unique_ptr<operation> work_;
};

/// A communicator whose ranks share an address space. Lendings and exchanges match each other's kind only: all ranks
/// use the same one. Peers and sizes are as for `start_exchange`.
template <class C>
concept memory_sharing_communicator =
    communicator<C> &&
    requires(C& c, std::span<const lent> lends, std::span<const borrowed> borrows, const call_options& options) {
      { c.start_lending(lends, borrows, options) } -> std::same_as<result<lending>>;
    };

}  // namespace shardmesh
