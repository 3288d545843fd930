// SPDX-License-Identifier: Apache-2.0
// any_communicator: owns a communicator of any type. Functions that only use a communicator take a `communicator_ref`.
module;
#include <shardmesh/refuse.hpp>
export module shardmesh.comm:any_communicator;

import shardmesh.std;
import :communicator;
import :communicator_ref;

export namespace shardmesh {

/// The owner of a communicator of any type, and a `communicator_ref` to it. Move-only; references survive a move.
class any_communicator : public communicator_ref {
 public:
  template <class C>
    requires(!std::derived_from<std::remove_cvref_t<C>, communicator_ref> && communicator<std::remove_cvref_t<C>>)
  explicit any_communicator(C&& c)
      : any_communicator(std::make_unique<owned<std::remove_cvref_t<C>>>(std::forward<C>(c))) {}

  /// Refuses a type that does not model `communicator`.
  template <class C>
    requires(!std::derived_from<std::remove_cvref_t<C>, communicator_ref> && !communicator<std::remove_cvref_t<C>>)
  explicit any_communicator(C&& c) = SHARDMESH_REFUSE(
      "a communicator has rank, size, all_gather, start_exchange, and abort, with the signatures of the concept "
      "shardmesh::communicator");

 private:
  struct holder {
    virtual ~holder() = default;
  };
  template <class C>
  struct owned final : holder {
    template <class Given>
    explicit owned(Given&& given) : held(std::forward<Given>(given)) {}
    C held;
  };
  template <class C>
  explicit any_communicator(std::unique_ptr<owned<C>> model)
      : communicator_ref(model->held), model_(std::move(model)) {}

  std::unique_ptr<holder> model_;
};

}  // namespace shardmesh
