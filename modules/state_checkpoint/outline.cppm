// SPDX-License-Identifier: Apache-2.0
// outline: the state dict that a checkpoint holds, without its tensors. It lists the tensors to read, and the path of
// each entry. This partition has everything that does not depend on the type of the tensors.
export module shardmesh.state_checkpoint:outline;

import shardmesh.std;
import shardmesh.fsdp;
import shardmesh.checkpoint;

export namespace shardmesh {

/// The report of a call that reads a state dict.
struct read_state_report {
  std::vector<loaded_cast> casts;  // tensors whose dtype differs from the stored one, in stored order; keys as stored
  /// For the user, one line each: the checkpoint's own notes; the number of casts that lose values; optimizer state
  /// that followed its parameters, or was left out; rules that change no tensor.
  std::vector<std::string> notes;
};

/// The options for reading a checkpoint as a state dict.
struct read_state_options {
  // Chooses, renames and casts entries; a renamed entry is at the top level.
  selection_options selection{};
  bool objects = true;  // false: tensors only
  // As in load_options. Casts are those of the selection.
  int threads = 0;
  bool check = false;
  time_limit within{};
  std::stop_token cancel{};
  std::function<void(std::int64_t bytes)> progress{};
  /// Called once, after every tensor has been read.
  std::function<void(const read_state_report&)> report{};
  read_options reading{};
  open_options opening{};  // of a checkpoint that is given by its path

  /// Returns the options of the reads.
  load_options loading() const {
    return {.threads = threads,
            .check = check,
            .within = within,
            .cancel = cancel,
            .progress = progress,
            .reading = reading};
  }
};

}  // namespace shardmesh

namespace shardmesh::detail {

struct outlined_tensor {
  std::string key;  // in the checkpoint
  path where;       // in the state dict
  dtype type = dtype::undefined;
  extents shape;                 // of the whole tensor
  std::optional<layout> placed;  // if set, only this rank's part under this layout is read; else the whole tensor
};

/// A leaf of the state dict: the index of a tensor, or else a value.
struct outlined_leaf {
  std::optional<std::size_t> tensor;
  plain_value value;
};

struct state_outline {
  std::vector<outlined_tensor> tensors;
  tree_spec spec;
  std::vector<outlined_leaf> leaves;  // in the order of the spec
  std::vector<std::string> notes;     // of the selection
};

/// A reader whose entries are the complete contents: objects that hold tensors are split into entries.
class opened_state {
 public:
  static result<opened_state> open(checkpoint_reader& reader);
  checkpoint_reader& reader() const { return *reader_; }

 private:
  std::unique_ptr<checkpoint_reader> split_;
  checkpoint_reader* reader_ = nullptr;
};

/// Returns the outline of the whole checkpoint. Reads the objects.
result<state_outline> outline_of(checkpoint_reader& reader, const read_state_options& options);

/// Gives every tensor its layout over the mesh, and checks that `rank` can hold its part.
result<void> place(state_outline& outline, const device_mesh& mesh, std::span<const placement_rule> rules,
                   std::int32_t rank, const placement_options& placing);

/// Returns the sizes of the part of a tensor that `rank` holds.
extents local_shape(const outlined_tensor& tensor, std::int32_t rank);

/// Returns requests that load a rank's part of `placed` into its local memory; null: the rank holds nothing.
result<std::vector<load_request>> requests_of(const checkpoint_reader& reader, std::string_view key,
                                              const layout& placed, std::int32_t rank, const tensor_view* local);

/// Fills `views`, one per tensor of the outline, and calls `options.report`.
result<void> fill(checkpoint_reader& reader, const state_outline& outline, std::int32_t rank,
                  std::span<const tensor_view> views, const read_state_options& options);

/// Makes a state dict of filled tensors; `held(i)` returns the value of tensor i.
template <allocatable_tensor T, class Held>
result<state_dict<T>> assemble(state_outline outline, Held&& held) {
  std::vector<state_value<T>> leaves;
  leaves.reserve(outline.leaves.size());
  for (outlined_leaf& leaf : outline.leaves) {
    if (!leaf.tensor) {
      leaves.push_back(value_of<T>(std::move(leaf.value)));
      continue;
    }
    result<state_value<T>> value = held(*leaf.tensor);
    if (!value) return std::move(value).error().with_key(outline.tensors[*leaf.tensor].key);
    leaves.push_back(*std::move(value));
  }
  return state_dict<T>::make(std::move(outline.spec), std::move(leaves));
}

/// Makes and fills new tensors for everything that `rank` reads.
template <allocatable_tensor T>
result<std::vector<T>> read_tensors(checkpoint_reader& reader, const state_outline& outline, std::int32_t rank,
                                    const read_state_options& options) {
  std::vector<T> tensors;
  std::vector<tensor_view> views;
  tensors.reserve(outline.tensors.size());
  for (const outlined_tensor& one : outline.tensors) {
    auto made = allocated<T>(one.type, local_shape(one, rank), device{});
    if (!made) return std::move(made).error().with_key(one.key);
    tensors.push_back(*std::move(made));
    views.push_back(adapter<T>::view(tensors.back()));
  }
  if (auto filled = fill(reader, outline, rank, views, options); !filled) return std::move(filled).error();
  return tensors;
}

}  // namespace shardmesh::detail
