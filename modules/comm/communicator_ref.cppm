// SPDX-License-Identifier: Apache-2.0
// communicator_ref: one type that refers to any model of `communicator`, so that planning and running are compiled
// once. The owning counterpart is in any_communicator.
export module shardmesh.comm:communicator_ref;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :collectives;
import :communicator;
import :lending;
import :object_numbers;

namespace shardmesh::detail {

// An optional feature of a model: it has its own set of the numbers that tell subgroups and executors apart.
template <class C>
concept numbers_objects = requires(C& c) {
  { c.numbers() } -> std::same_as<object_numbers>;
};

// An optional feature of a model: its network has collectives among a subset of the ranks (see
// `communicator_ref::groups`).
template <class C>
concept has_groups_of_ranks = requires(C& c, std::span<const std::int32_t> group_of, const call_options& options) {
  { c.groups(group_of, options) } -> std::same_as<result<C*>>;
};

// The functions of one communicator type; each takes the communicator as its first argument.
struct communicator_calls {
  virtual std::int32_t rank(const void*) const = 0;
  virtual std::int32_t size(const void*) const = 0;
  virtual result<std::vector<std::vector<std::byte>>> all_gather(void*, std::span<const std::byte>,
                                                                 const call_options&) const = 0;
  virtual result<pending> start_exchange(void*, std::span<const outgoing>, std::span<const incoming>,
                                         const call_options&) const = 0;
  virtual void abort(void*, const error&) const = 0;
  virtual bool shares_memory(const void*) const = 0;
  virtual result<lending> start_lending(void*, std::span<const lent>, std::span<const borrowed>,
                                        const call_options&) const = 0;
  virtual bool has_collectives(const void*) const = 0;
  virtual result<pending> all_gather_into(void*, std::span<const std::byte>, std::span<std::byte>,
                                          const call_options&) const = 0;
  virtual result<pending> all_to_all(void*, std::span<const std::byte>, std::span<std::byte>,
                                     const call_options&) const = 0;
  virtual result<pending> reduce_scatter(void*, std::span<const std::byte>, std::span<std::byte>, dtype, reduce_op,
                                         const call_options&) const = 0;
  virtual result<pending> all_reduce(void*, std::span<const std::byte>, std::span<std::byte>, dtype, reduce_op,
                                     const call_options&) const = 0;
  virtual result<pending> broadcast(void*, std::span<const std::byte>, std::span<std::byte>, std::int32_t,
                                    const call_options&) const = 0;
  virtual device memory(const void*) const = 0;
  virtual bool is_ordered(const void*) const = 0;
  struct model {
    void* object = nullptr;
    const communicator_calls* calls = nullptr;
  };
  virtual bool has_groups() const = 0;
  virtual result<model> groups(void*, std::span<const std::int32_t>, const call_options&) const = 0;
  virtual object_numbers numbers(void*) const = 0;

 protected:
  constexpr communicator_calls() = default;
  ~communicator_calls() = default;  // not virtual: the objects are constants, never destroyed through the base
};

template <class C>
struct calls_of final : communicator_calls {
  constexpr calls_of() = default;
  static C& it(void* c) { return *static_cast<C*>(c); }
  static const C& it(const void* c) { return *static_cast<const C*>(c); }
  static error no_collectives() { return fail(errc::unsupported, "this communicator has no collectives of its own"); }

  std::int32_t rank(const void* c) const override { return it(c).rank(); }
  std::int32_t size(const void* c) const override { return it(c).size(); }
  result<std::vector<std::vector<std::byte>>> all_gather(void* c, std::span<const std::byte> bytes,
                                                         const call_options& options) const override {
    return it(c).all_gather(bytes, options);
  }
  result<pending> start_exchange(void* c, std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options) const override {
    return it(c).start_exchange(sends, receives, options);
  }
  void abort(void* c, const error& reason) const override { it(c).abort(reason); }
  bool shares_memory(const void* c) const override {
    if constexpr (requires(const C& model) {
                    { model.shares_memory() } -> std::same_as<bool>;
                  })
      return it(c).shares_memory();
    else
      return memory_sharing_communicator<C>;
  }
  result<lending> start_lending(void* c, std::span<const lent> lends, std::span<const borrowed> borrows,
                                const call_options& options) const override {
    if constexpr (memory_sharing_communicator<C>)
      return it(c).start_lending(lends, borrows, options);
    else
      return fail(errc::unsupported, "the ranks of this communicator do not share memory");
  }
  bool has_collectives(const void* c) const override {
    if constexpr (requires(const C& model) {
                    { model.has_collectives() } -> std::same_as<bool>;
                  })
      return it(c).has_collectives();
    else
      return collective_communicator<C>;
  }
  result<pending> all_gather_into(void* c, std::span<const std::byte> send, std::span<std::byte> receive,
                                  const call_options& options) const override {
    if constexpr (collective_communicator<C>)
      return it(c).all_gather_into(send, receive, options);
    else
      return no_collectives();
  }
  result<pending> all_to_all(void* c, std::span<const std::byte> send, std::span<std::byte> receive,
                             const call_options& options) const override {
    if constexpr (collective_communicator<C>)
      return it(c).all_to_all(send, receive, options);
    else
      return no_collectives();
  }
  result<pending> reduce_scatter(void* c, std::span<const std::byte> send, std::span<std::byte> receive, dtype type,
                                 reduce_op op, const call_options& options) const override {
    if constexpr (collective_communicator<C>)
      return it(c).reduce_scatter(send, receive, type, op, options);
    else
      return no_collectives();
  }
  result<pending> all_reduce(void* c, std::span<const std::byte> send, std::span<std::byte> receive, dtype type,
                             reduce_op op, const call_options& options) const override {
    if constexpr (collective_communicator<C>)
      return it(c).all_reduce(send, receive, type, op, options);
    else
      return no_collectives();
  }
  result<pending> broadcast(void* c, std::span<const std::byte> send, std::span<std::byte> receive, std::int32_t root,
                            const call_options& options) const override {
    if constexpr (collective_communicator<C>)
      return it(c).broadcast(send, receive, root, options);
    else
      return no_collectives();
  }
  device memory(const void* c) const override {
    if constexpr (requires(const C& model) {
                    { model.memory() } -> std::same_as<device>;
                  })
      return it(c).memory();
    else
      return {};
  }
  bool is_ordered(const void* c) const override {
    if constexpr (requires(const C& model) {
                    { model.is_ordered() } -> std::same_as<bool>;
                  })
      return it(c).is_ordered();
    else
      return false;
  }
  bool has_groups() const override { return has_groups_of_ranks<C>; }
  result<model> groups(void* c, std::span<const std::int32_t> group_of, const call_options& options) const override {
    if constexpr (has_groups_of_ranks<C>) {
      auto made = it(c).groups(group_of, options);
      if (!made) return std::move(made).error();
      return model{*made, this};
    } else {
      return no_collectives();
    }
  }
  object_numbers numbers(void* c) const override {
    if constexpr (numbers_objects<C>)
      return it(c).numbers();
    else
      return process_numbers();
  }
};

template <class C>
inline constexpr calls_of<C> calls_for{};

}  // namespace shardmesh::detail

export namespace shardmesh {

/// A reference to a communicator that the caller owns: a `thread_communicator`, an `mpi_communicator`, an
/// `any_communicator`, or a model of your own. Every function that involves several ranks takes one. It is two
/// pointers, passed by value; copies refer to the same communicator, and members are const, as with a pointer. It binds
/// to variables only, because a temporary would be destroyed before a started run is over.
class communicator_ref {
 public:
  /// Refers to `c`, which must outlive this reference and all work started through it.
  template <communicator C>
    requires(!std::same_as<std::remove_const_t<C>, communicator_ref>)
  communicator_ref(C& c) : communicator_ref(refer(c)) {}

  /// Refuses a temporary: put the communicator into a variable that outlives the work started with it.
  template <class C>
    requires(!std::is_lvalue_reference_v<C> && !std::same_as<std::remove_cv_t<C>, communicator_ref> &&
             communicator<std::remove_cv_t<C>>)
  communicator_ref(C&& keep_the_communicator_in_a_variable) = delete;

  std::int32_t rank() const { return calls_->rank(object_); }
  std::int32_t size() const { return calls_->size(object_); }
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes,
                                                         const call_options& options) const {
    return calls_->all_gather(object_, bytes, options);
  }
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options) const {
    return calls_->start_exchange(object_, sends, receives, options);
  }
  void abort(const error& reason) const { calls_->abort(object_, reason); }

  /// Returns whether the ranks share an address space, so that `start_lending` works.
  bool shares_memory() const { return calls_->shares_memory(object_); }
  /// Starts a lending, as `memory_sharing_communicator` describes. errc::unsupported when `shares_memory()` is false.
  result<lending> start_lending(std::span<const lent> lends, std::span<const borrowed> borrows,
                                const call_options& options) const {
    return calls_->start_lending(object_, lends, borrows, options);
  }

  /// Returns whether the communicator is a `collective_communicator`. If not, the next five functions return
  /// errc::unsupported.
  bool has_collectives() const { return calls_->has_collectives(object_); }
  result<pending> all_gather_into(std::span<const std::byte> send, std::span<std::byte> receive,
                                  const call_options& options) const {
    return calls_->all_gather_into(object_, send, receive, options);
  }
  result<pending> all_to_all(std::span<const std::byte> send, std::span<std::byte> receive,
                             const call_options& options) const {
    return calls_->all_to_all(object_, send, receive, options);
  }
  result<pending> reduce_scatter(std::span<const std::byte> send, std::span<std::byte> receive, dtype type,
                                 reduce_op op, const call_options& options) const {
    return calls_->reduce_scatter(object_, send, receive, type, op, options);
  }
  result<pending> all_reduce(std::span<const std::byte> send, std::span<std::byte> receive, dtype type, reduce_op op,
                             const call_options& options) const {
    return calls_->all_reduce(object_, send, receive, type, op, options);
  }
  result<pending> broadcast(std::span<const std::byte> send, std::span<std::byte> receive, std::int32_t root,
                            const call_options& options) const {
    return calls_->broadcast(object_, send, receive, root, options);
  }

  /// Returns whether the model also has collectives among a subset of the ranks, through `groups`.
  bool has_groups() const { return calls_->has_groups(); }
  /// Splits the ranks into groups and returns this rank's group. Ranks r with equal `group_of[r]` form a group, in
  /// which they keep their order. Collective over all ranks, which must pass equal numbers; blocks. The communicator
  /// keeps the group and returns the same one for the same numbers. errc::unsupported when `has_groups()` is false;
  /// errc::invalid_argument unless there is one number per rank; the communicator's own errors.
  result<communicator_ref> groups(std::span<const std::int32_t> group_of, const call_options& options) const {
    auto made = calls_->groups(object_, group_of, options);
    if (!made) return std::move(made).error();
    return communicator_ref(made->object, made->calls);
  }

  /// Returns the device whose memory holds the bytes of exchanges and collectives: the host, unless the model names
  /// another. The bytes of `all_gather` are always in host memory.
  device memory() const { return calls_->memory(object_); }
  /// Returns whether messages match by the order in which they are started, not by tag (as in NCCL). If so, all ranks
  /// must start the same exchanges in the same order, and runs that may overlap need a communicator each.
  bool is_ordered() const { return calls_->is_ordered(object_); }

  /// Returns a pointer to the communicator if its type is C, and null otherwise.
  template <communicator C>
  C* target() const {
    return dynamic_cast<const detail::calls_of<C>*>(calls_) != nullptr ? static_cast<C*>(object_) : nullptr;
  }

  /// Returns the numbers that the subgroups and executors on this communicator hold, which tell their messages apart. A
  /// model with a function `numbers` keeps its own set; all other models in a process share one.
  object_numbers numbers() const { return calls_->numbers(object_); }

  /// Compares identity: equal when both refer to the same communicator object.
  friend bool operator==(const communicator_ref& a, const communicator_ref& b) { return a.object_ == b.object_; }

 private:
  template <class C>
  static communicator_ref refer(C& c) {
    if constexpr (std::derived_from<C, communicator_ref>)
      return static_cast<const communicator_ref&>(c);
    else
      return communicator_ref(std::addressof(c), &detail::calls_for<C>);
  }
  communicator_ref(void* object, const detail::communicator_calls* calls) : object_(object), calls_(calls) {}
  void* object_;
  const detail::communicator_calls* calls_;
};

}  // namespace shardmesh
