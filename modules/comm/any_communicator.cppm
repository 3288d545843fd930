// SPDX-License-Identifier: Apache-2.0
// any_communicator: any model of `communicator` behind one type, so that planning and running are compiled once.
export module shardmesh.comm:any_communicator;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :collectives;
import :communicator;
import :lending;

export namespace shardmesh {

/// Owns a communicator of any type (or refers to one, made with `any_communicator::refer`). Move-only.
class any_communicator {
 public:
  template <class C>
    requires(!std::same_as<std::remove_cvref_t<C>, any_communicator> && communicator<std::remove_cvref_t<C>>)
  explicit any_communicator(C&& c) : model_(std::make_unique<owned<std::remove_cvref_t<C>>>(std::forward<C>(c))) {}

  /// Refers to a communicator that outlives it.
  template <communicator C>
  static any_communicator refer(C& c) {
    return any_communicator(std::make_unique<referred<C>>(c));
  }

  std::int32_t rank() const { return model_->rank(); }
  std::int32_t size() const { return model_->size(); }
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes,
                                                         const call_options& options) {
    return model_->all_gather(bytes, options);
  }
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options) {
    return model_->start_exchange(sends, receives, options);
  }
  void abort(const error& reason) { model_->abort(reason); }

  /// True when the communicator's ranks share an address space, so that `start_lending` works.
  bool shares_memory() const { return model_->shares_memory(); }
  /// As `memory_sharing_communicator`. errc::unsupported when `shares_memory()` is false.
  result<lending> start_lending(std::span<const lent> lends, std::span<const borrowed> borrows,
                                const call_options& options) {
    return model_->start_lending(lends, borrows, options);
  }

  /// True when the communicator is a `collective_communicator`, so that the next four work; else errc::unsupported.
  bool has_collectives() const { return model_->has_collectives(); }
  result<pending> all_gather_into(std::span<const std::byte> send, std::span<std::byte> receive,
                                  const call_options& options) {
    return model_->all_gather_into(send, receive, options);
  }
  result<pending> all_to_all(std::span<const std::byte> send, std::span<std::byte> receive,
                             const call_options& options) {
    return model_->all_to_all(send, receive, options);
  }
  result<pending> reduce_scatter(std::span<const std::byte> send, std::span<std::byte> receive, dtype type,
                                 reduce_op op, const call_options& options) {
    return model_->reduce_scatter(send, receive, type, op, options);
  }
  result<pending> all_reduce(std::span<const std::byte> send, std::span<std::byte> receive, dtype type, reduce_op op,
                             const call_options& options) {
    return model_->all_reduce(send, receive, type, op, options);
  }

  /// The communicator itself, when it is a C; null otherwise.
  template <communicator C>
  C* target() {
    auto* const model = dynamic_cast<over<C>*>(model_.get());
    return model != nullptr ? &model->it() : nullptr;
  }

  /// Numbers that are the same on every rank when all ask equally often: they keep the messages of objects on one
  /// communicator apart. Ranks that may not agree take the largest, with `skip_to`.
  std::uint32_t next_number() { return number_++; }
  void skip_to(std::uint32_t number) { number_ = number > number_ ? number : number_; }

 private:
  struct interface {
    virtual ~interface() = default;
    virtual std::int32_t rank() const = 0;
    virtual std::int32_t size() const = 0;
    virtual result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte>, const call_options&) = 0;
    virtual result<pending> start_exchange(std::span<const outgoing>, std::span<const incoming>,
                                           const call_options&) = 0;
    virtual void abort(const error&) = 0;
    virtual bool shares_memory() const = 0;
    virtual result<lending> start_lending(std::span<const lent>, std::span<const borrowed>, const call_options&) = 0;
    virtual bool has_collectives() const = 0;
    virtual result<pending> all_gather_into(std::span<const std::byte>, std::span<std::byte>, const call_options&) = 0;
    virtual result<pending> all_to_all(std::span<const std::byte>, std::span<std::byte>, const call_options&) = 0;
    virtual result<pending> reduce_scatter(std::span<const std::byte>, std::span<std::byte>, dtype, reduce_op,
                                           const call_options&) = 0;
    virtual result<pending> all_reduce(std::span<const std::byte>, std::span<std::byte>, dtype, reduce_op,
                                       const call_options&) = 0;
  };

  template <class C>
  struct over : interface {
    virtual C& it() = 0;
    virtual const C& it() const = 0;
    std::int32_t rank() const override { return it().rank(); }
    std::int32_t size() const override { return it().size(); }
    result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes,
                                                           const call_options& options) override {
      return it().all_gather(bytes, options);
    }
    result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                   const call_options& options) override {
      return it().start_exchange(sends, receives, options);
    }
    void abort(const error& reason) override { it().abort(reason); }
    bool shares_memory() const override {
      if constexpr (requires(const C& c) {
                      { c.shares_memory() } -> std::same_as<bool>;
                    })
        return it().shares_memory();
      else
        return memory_sharing_communicator<C>;
    }
    result<lending> start_lending(std::span<const lent> lends, std::span<const borrowed> borrows,
                                  const call_options& options) override {
      if constexpr (memory_sharing_communicator<C>)
        return it().start_lending(lends, borrows, options);
      else
        return fail(errc::unsupported, "the ranks of this communicator do not share memory");
    }
    bool has_collectives() const override {
      if constexpr (requires(const C& c) {
                      { c.has_collectives() } -> std::same_as<bool>;
                    })
        return it().has_collectives();
      else
        return collective_communicator<C>;
    }
    result<pending> all_gather_into(std::span<const std::byte> send, std::span<std::byte> receive,
                                    const call_options& options) override {
      if constexpr (collective_communicator<C>)
        return it().all_gather_into(send, receive, options);
      else
        return no_collectives();
    }
    result<pending> all_to_all(std::span<const std::byte> send, std::span<std::byte> receive,
                               const call_options& options) override {
      if constexpr (collective_communicator<C>)
        return it().all_to_all(send, receive, options);
      else
        return no_collectives();
    }
    result<pending> reduce_scatter(std::span<const std::byte> send, std::span<std::byte> receive, dtype type,
                                   reduce_op op, const call_options& options) override {
      if constexpr (collective_communicator<C>)
        return it().reduce_scatter(send, receive, type, op, options);
      else
        return no_collectives();
    }
    result<pending> all_reduce(std::span<const std::byte> send, std::span<std::byte> receive, dtype type, reduce_op op,
                               const call_options& options) override {
      if constexpr (collective_communicator<C>)
        return it().all_reduce(send, receive, type, op, options);
      else
        return no_collectives();
    }
    static error no_collectives() { return fail(errc::unsupported, "this communicator has no collectives of its own"); }
  };

  template <class C>
  struct owned final : over<C> {
    explicit owned(C c) : held(std::move(c)) {}
    C& it() override { return held; }
    const C& it() const override { return held; }
    C held;
  };

  template <class C>
  struct referred final : over<C> {
    explicit referred(C& c) : target(c) {}
    C& it() override { return target; }
    const C& it() const override { return target; }
    C& target;
  };

  explicit any_communicator(std::unique_ptr<interface> model) : model_(std::move(model)) {}
  std::unique_ptr<interface> model_;
  std::uint32_t number_ = 0;
};

}  // namespace shardmesh
