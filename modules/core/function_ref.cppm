// SPDX-License-Identifier: Apache-2.0
// function_ref: a reference to a callable, for parameters. It neither allocates nor owns.
module;
#include <shardmesh/refuse.hpp>
export module shardmesh.core:function_ref;

import shardmesh.std;

export namespace shardmesh {

/// A parameter type for a visitor or predicate that the function calls only until it returns. `Signature` is
/// `Return(Arguments...)`. The object refers to the callable: it neither copies nor allocates.
template <class Signature>
class function_ref;

/// Refers to any callable of this signature, including a plain function. The callable must outlive the function_ref.
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
      "this function does not take the arguments, or does not return the type, of function_ref<Answer(Arguments)>: a "
      "visitor, for example, returns bool, true to continue");

  Return operator()(Arguments... arguments) const { return call_(object_, std::forward<Arguments>(arguments)...); }

 private:
  // Points to a plain function or to a callable, const or not; `call_` knows which.
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
