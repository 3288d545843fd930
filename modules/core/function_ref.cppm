// SPDX-License-Identifier: Apache-2.0
// function_ref: a callable that is called before the call it was given to returns. No allocation, no ownership.
module;
#include <shardmesh/refuse.hpp>
export module shardmesh.core:function_ref;

import shardmesh.std;

export namespace shardmesh {

template <class Signature>
class function_ref;

/// Refers to any callable of this signature; the callable must outlive the function_ref.
template <class Return, class... Arguments>
class function_ref<Return(Arguments...)> {
 public:
  template <class Callable>
    requires(!std::same_as<std::remove_cvref_t<Callable>, function_ref> &&
             std::is_invocable_r_v<Return, Callable&, Arguments...>)
  function_ref(Callable&& callable)  // NOLINT: implicit, as a parameter type
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Arguments... arguments) -> Return {
          return (*static_cast<std::remove_reference_t<Callable>*>(object))(std::forward<Arguments>(arguments)...);
        }) {}

  template <class Callable>
    requires(!std::same_as<std::remove_cvref_t<Callable>, function_ref> &&
             !std::is_invocable_r_v<Return, Callable&, Arguments...>)
  function_ref(Callable&&) = SHARDMESH_REFUSE(
      "this function is not called with the arguments, or does not give the answer, that "
      "function_ref<Answer(Arguments)> "
      "names: a visitor, for example, returns bool, true to go on");

  Return operator()(Arguments... arguments) const { return call_(object_, std::forward<Arguments>(arguments)...); }

 private:
  void* object_;
  Return (*call_)(void*, Arguments...);
};

}  // namespace shardmesh
