// SPDX-License-Identifier: Apache-2.0
// Converts a torch::nn::Module to a state dict of its parameters and buffers by name, and back. Its local view lets
// `save` and `load` take a module directly. Files with options for modules are in module_checkpoint.
export module shardmesh.torch:module_state;

import shardmesh.std;
import shardmesh.core;
import shardmesh.kernels;
import shardmesh.tree;
import shardmesh.state;

namespace shardmesh::detail {

template <class M>
using named_tensors = decltype(static_cast<const M*>(nullptr)->named_parameters(true));
template <class M>
using module_tensor = std::remove_cvref_t<decltype(static_cast<named_tensors<M>*>(nullptr)->begin()->value())>;

}  // namespace shardmesh::detail

export namespace shardmesh {

/// A module of LibTorch: torch::nn::Module or a class derived from it. Its tensors are local tensors if
/// `shardmesh/torch_tensor.hpp` is included.
template <class M>
concept torch_module = requires(const M& module, bool recurse) {
  { module.named_parameters(recurse).begin()->key() } -> std::convertible_to<std::string>;
  { module.named_buffers(recurse) } -> std::same_as<detail::named_tensors<M>>;
} && local_tensor<detail::module_tensor<M>>;

/// A parameter or a buffer of a module. It shares the module's elements, since an at::Tensor is a handle.
template <torch_module M>
struct module_entry {
  std::string name;  // as in Python's state_dict(): "layers.0.weight"
  detail::module_tensor<M> tensor;
};

/// Returns the parameters, then the buffers, of the module and all its submodules, without undefined ones (a Linear
/// without bias). LibTorch's modules do not record which buffers Python calls persistent, so all buffers are included.
/// Cost: O(entries); no elements are copied.
template <torch_module M>
std::vector<module_entry<M>> entries_of(const M& module) {
  std::vector<module_entry<M>> made;
  for (const auto& named : {module.named_parameters(true), module.named_buffers(true)})
    for (const auto& one : named)
      if (one.value().defined()) made.push_back({one.key(), one.value()});
  return made;
}

/// Returns the entries as a flat mapping by full names, like Python's state_dict(). Its tensors share the module's
/// elements: loading into the state dict loads into the module.
/// \errors those of `check_tensor` (a sparse parameter, a lazy conjugation), naming the entry
/// Source: torch.nn.Module.state_dict
template <torch_module M>
result<state_dict<detail::module_tensor<M>>> state_of(const M& module) {
  state_dict<detail::module_tensor<M>> made;
  for (module_entry<M>& one : entries_of(module)) {
    if (auto plain = check_tensor(one.tensor); !plain) return std::move(plain).error().with_key(one.name);
    if (auto set = made.set({one.name}, std::move(one.tensor)); !set) return std::move(set).error();
  }
  return made;
}

/// Copies a state dict's tensors into the module's own, which stay where they are. Dtypes are converted as in
/// `Tensor.copy_`; devices may differ. Both must have the same names and shapes.
/// \errors before anything is copied: errc::missing_key (the state dict lacks an entry), errc::invalid_argument (an
///         entry that the module lacks, or that is not a plain tensor), errc::shape_mismatch; those of `check_tensor`.
///         Each names the entry.
/// Source: torch.nn.Module.load_state_dict(strict=True)
template <torch_module M>
result<void> put_state(M& module, const state_dict<detail::module_tensor<M>>& state) {
  using tensor = detail::module_tensor<M>;
  std::vector<module_entry<M>> entries = entries_of(module);
  std::vector<const tensor*> sources;
  for (const module_entry<M>& one : entries) {
    const auto* const value = state.find({one.name});
    if (value == nullptr) return fail(errc::missing_key, "the state dict lacks this entry").with_key(one.name);
    if (value->tensor() == nullptr)
      return fail(errc::invalid_argument, "the state dict holds no plain tensor here")
          .with_key(one.name)
          .with_values("tensor", std::string(name(value->kind())));
    for (const tensor* side : {&one.tensor, value->tensor()})
      if (auto plain = check_tensor(*side); !plain) return std::move(plain).error().with_key(one.name);
    const extents wanted = view_of(std::as_const(one.tensor)).sizes, given = view_of(*value->tensor()).sizes;
    if (wanted != given)
      return fail(errc::shape_mismatch, "the module's tensor and that of the state dict differ in shape")
          .with_key(one.name)
          .with_values(to_string(wanted), to_string(given));
    sources.push_back(value->tensor());
  }
  if (sources.size() != state.size()) {
    std::set<path> known;
    for (const module_entry<M>& one : entries) known.insert(path{one.name});
    for (const path& where : state.spec().leaf_paths())
      if (!known.contains(where))
        return fail(errc::invalid_argument, "the module has no such entry").with_key(to_string(where));
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const const_tensor_view from = view_of(*sources[i]);
    if (auto copied = copy_between(view_of(entries[i].tensor), from); !copied)
      return std::move(copied).error().with_key(entries[i].name);
    note_written(entries[i].tensor);
  }
  return {};
}

}  // namespace shardmesh

namespace shardmesh {

/// Each entry is whole on this rank, at the path of its name alone. The view refers to the elements, which the module
/// owns.
template <torch_module M>
struct state_adapter<M> {
  /// \errors those of `check_tensor`, naming the entry
  /// Cost: O(entries); no elements are copied.
  static result<local_state> local_view(M& module) { return view_of_all(module); }
  static result<const_local_state> local_view(const M& module) {
    auto made = view_of_all(module);
    if (!made) return std::move(made).error();
    return const_local_state(*made);
  }

 private:
  static result<local_state> view_of_all(const M& module) {
    local_state made;
    for (module_entry<M>& one : entries_of(module)) {
      if (auto plain = check_tensor(one.tensor); !plain) return std::move(plain).error().with_key(one.name);
      const tensor_view memory = view_of(one.tensor);
      made.tensors.push_back({{one.name},
                              memory.sizes,
                              memory.type,
                              {{box::whole(memory.sizes), memory}},
                              [filled = one.tensor]() mutable { note_written(filled); }});
    }
    return made;
  }
};

}  // namespace shardmesh
