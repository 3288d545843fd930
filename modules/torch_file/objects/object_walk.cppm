// SPDX-License-Identifier: Apache-2.0
// Not exported: the walk through one object, which finds its tensors and the plain data beside them. `object_parts`
// makes entries of them.
module shardmesh.torch_file:object_walk;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import shardmesh.tree;
import :flatten;
import :item;
import :tensor_search;

namespace shardmesh::torch_file {

// The result of taking one object apart.
struct split_object {
  std::vector<flat_entry> entries;
  std::vector<pickle::value> left_out;   // values with tensors but without a name
  std::size_t attributes = 0;            // tensor-free attributes of modules, which are dropped
  std::size_t positions = 0;             // keys that no format can hold, replaced by their positions
  std::vector<std::uint64_t> transient;  // buffers that state_dict() leaves out
  std::vector<std::string> transient_names;
  bool is_apart = false;  // the object was taken apart
};

// The most entries and bytes of pickled keys that the walk of an item may make.
struct walk_limits {
  std::size_t entries = 0, key_bytes = 0;
};

// Walks through all objects of an item. The limits hold for all of them together.
class object_walk {
 public:
  // The item, the options, and the search must outlive the walk.
  object_walk(const torch_file::item& item, const flatten_options& options, tensor_search& search,
              const walk_limits& limits);

  // Takes an entry's object apart. If that would exceed the limits, leaves `into` empty.
  void take(const flat_entry& entry, split_object& into);

 private:
  // Enters a value. Returns false if that would exceed the limits. `is_submodule`: the path's last step names this
  // module.
  bool enter(const pickle::value& value, bool is_submodule = false);
  bool enter_parts(const pickle::value& value, bool is_submodule);
  bool enter_items(const pickle::items& items);
  // Positions replace keys that cannot be kept, such as tensors as keys of an optimizer's state.
  bool enter_pairs(const pickle::pairs& pairs);
  // Enters a module as state_dict() does: one dict, whose keys join the names of submodules and parameters.
  bool enter_module(const pickle::value& state, bool is_submodule);
  // Enters the contents of an instance: items of a tuple or list subclass, entries of a dict subclass, attributes, and
  // slots. Tensors among a function's arguments stay hidden, because only the function knows their meaning.
  bool enter_instance(const pickle::value& record);
  // `joins`: joins the name to the path's last step with a dot.
  bool step(const path_key& name, const pickle::value& value, bool joins = false, bool is_submodule = false);
  bool add(const pickle::value& value);
  bool leave_out(const pickle::value& value);

  const item& item_;
  const flatten_options& options_;
  tensor_search& search_;
  walk_limits limits_;
  split_object* into_ = nullptr;
  path path_;
  std::string fqn_;
  std::vector<std::uint64_t> open_;  // the values around the current one
  std::size_t steps_ = 0, entries_ = 0, path_bytes_ = 0, key_bytes_ = 0;
};

}  // namespace shardmesh::torch_file
