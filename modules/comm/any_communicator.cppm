// SPDX-License-Identifier: Apache-2.0
// any_communicator: any model of `communicator` behind one type, so that planning and running are compiled once.
module;
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>
export module shardmesh.comm:any_communicator;

import shardmesh.core;
import :communicator;

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

 private:
  struct interface {
    virtual ~interface() = default;
    virtual std::int32_t rank() const = 0;
    virtual std::int32_t size() const = 0;
    virtual result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte>, const call_options&) = 0;
    virtual result<pending> start_exchange(std::span<const outgoing>, std::span<const incoming>,
                                           const call_options&) = 0;
    virtual void abort(const error&) = 0;
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
};

}  // namespace shardmesh
