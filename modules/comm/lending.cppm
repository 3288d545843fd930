// SPDX-License-Identifier: Apache-2.0
// lending: ranks that share an address space read each other's memory in place, so a strided piece is copied once
// instead of packed, sent, and unpacked. Room transfer chooses the pieces; messages of bytes are in `communicator`.
export module shardmesh.comm:lending;

import shardmesh.std;
import shardmesh.core;
import :communicator;

export namespace shardmesh {

/// The numbered pieces of memory that a rank lets a peer read. The peer's thread calls it.
struct lender {
  virtual ~lender() = default;
  /// Returns piece `index`, in host memory. Precondition: both ranks agree that the piece exists.
  virtual const_tensor_view piece(std::size_t index) const = 0;
};

/// The pieces lent to a peer. `size_bytes` (more than 0) must equal the size that the peer expects. The lender and its
/// memory must stay alive and unchanged until `wait` on the lending returns.
struct lent {
  std::int32_t peer = 0;
  const lender* pieces = nullptr;
  std::int64_t size_bytes = 0;
};

/// The pieces borrowed from a peer.
struct borrowed {
  std::int32_t peer = 0;
  std::int64_t size_bytes = 0;
};

/// A lending in progress. Move-only. First wait for the peers (`wait_ready`), then read their pieces (`from`), then
/// call `wait`. `wait` gives the borrowed pieces back and blocks until the peers have given back this rank's pieces.
class lending {
 public:
  /// The interface of an implementation. `wait` is called at most once, and `from` only after `wait_ready` succeeded.
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

  /// Makes an empty lending: nothing lent, nothing borrowed.
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

  /// Returns whether `wait_ready` would return without blocking.
  bool ready() const { return !work_ || work_->ready(); }
  /// Blocks until every peer has lent its pieces (or the communicator is poisoned).
  result<void> wait_ready() { return work_ ? work_->wait_ready() : result<void>{}; }
  /// Returns the pieces lent by the peer of receive number `receive`.
  /// Precondition: `wait_ready` succeeded, and `wait` was not called.
  const lender& from(std::size_t receive) const { return std::as_const(*work_).from(receive); }
  /// Returns whether the communicator was poisoned or the call was cancelled. If so, the reader should stop soon.
  bool interrupted() const { return work_ && work_->interrupted(); }
  /// Ends the reading: the peers may change their memory again.
  void give_back() {
    if (work_) work_->give_back();
  }
  /// Returns whether `wait` would return without blocking (after `give_back`).
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

/// A communicator whose ranks share an address space. A lending matches only a lending, and an exchange only an
/// exchange, so both ranks must use the same kind. The rules for peers and sizes are those of `start_exchange`.
template <class C>
concept memory_sharing_communicator =
    communicator<C> &&
    requires(C& c, std::span<const lent> lends, std::span<const borrowed> borrows, const call_options& options) {
      { c.start_lending(lends, borrows, options) } -> std::same_as<result<lending>>;
    };

}  // namespace shardmesh
