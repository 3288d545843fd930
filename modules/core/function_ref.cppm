// SPDX-License-Identifier: Apache-2.0
// function_ref: a callable that is called before the call it was given to returns. No allocation, no ownership.
module;
#include <shardmesh/refuse.hpp>
export module shardmesh.core:function_ref;

import shardmesh.std;

export namespace shardmesh {

/// A parameter type for a callable that is called before the function it was given to returns: a visitor, a predicate.
/// `Signature` is `Return(Arguments...)`. It refers to the callable and neither copies nor allocates.
template <class Signature>
class function_ref;

/// Refers to any callable of this signature, a plain function too; the callable must outlive the function_ref.
template <class Return, class... Arguments>
class function_ref<Return(Arguments...)> {
 public:
  template <class Callable>
    requires(!std::same_as<std::remove_cvref_t<Callable>, function_ref> &&
             std::is_invocable_r_v<Return, Callable&, Arguments...>)
  function_ref(Callable&& callable)  // NOLINT: implicit, as a parameter type
      : object_(pointer::to(callable)), call_([](pointer object, Arguments... arguments) -> Return {
          using callable_type = std::remove_reference_t<Callable>;
          if constexpr (std::is_function_v<callable_type>)
            return reinterpret_cast<callable_type*>(object.calls)(std::forward<Arguments>(arguments)...);
          else if constexpr (std::is_const_v<callable_type>)
            return (*static_cast<callable_type*>(object.reads))(std::forward<Arguments>(arguments)...);
          else
            return (*static_cast<callable_type*>(object.changes))(std::forward<Arguments>(arguments)...);
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
  // To the callable, const or not as it was given, or a plain function; `call_` knows which.
  union pointer {
    template <class Callable>
    static pointer to(Callable& callable) {
      pointer made;
      if constexpr (std::is_function_v<Callable>)
        made.calls = reinterpret_cast<void (*)()>(&callable);
      else if constexpr (std::is_const_v<Callable>)
        made.reads = std::addressof(callable);
      else
        made.changes = std::addressof(callable);
      return made;
    }
    void* changes;
    const void* reads;
    void (*calls)();
  };
  pointer object_;
  Return (*call_)(pointer, Arguments...);
};

}  // namespace shardmesh
