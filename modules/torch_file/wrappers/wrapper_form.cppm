// SPDX-License-Identifier: Apache-2.0
// Checks the description of a wrapping tensor (docs/formats.md), and builds the wrapper's archive from it and the
// components' bytes. `known_wrapper` splits wrappers; `wrapped_reader` finds the stored components. Not exported.
module shardmesh.torch_file:wrapper_form;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import :wrapper_table;

namespace shardmesh::torch_file {

enum class wrapper_family : std::uint8_t { coo, compressed, nested, jagged, quantized, subclass };

struct component_form {
  std::string name;
  dtype type = dtype::undefined;
  extents shape;
  extents strides;  // in memory: a permutation of the contiguous strides
};

// A wrapper without its components' bytes. Its values belong to the description's graph, which must outlive this.
struct wrapper_form {
  wrapper_family family = wrapper_family::coo;
  std::string type;  // "torch.sparse_coo", "torchao.quantization.Int8Tensor"
  std::vector<component_form> components;
  std::optional<bool> parameter;  // set for a torch.nn.Parameter: whether it requires a gradient
  extents size;
  std::optional<bool> is_coalesced;               // coo
  const compressed_layout* layout = nullptr;      // compressed
  const quantized_dtype* quantized = nullptr;     // quantized
  pickle::value scale, zero_point;                // quantized per tensor
  std::int64_t axis = -1;                         // quantized per channel
  std::int64_t ragged_dimension = 0;              // jagged
  std::optional<std::int64_t> shortest, longest;  // jagged, if known
  bool is_parameter = false;                      // jagged
  bool requires_grad = false;                     // jagged, subclass, quantized
  const wrapper_class* subclass = nullptr;        // subclass
  dtype element_type = dtype::undefined;          // as the tensor reports it; undefined with `quantized`
  extents strides;                                // subclass
  // For a subclass: a dict of settings as plain data, and the names of the state in order.
  pickle::value attributes, order;

  const component_form* find(std::string_view name) const;
  // Returns the kind for messages: "sparse COO tensor".
  std::string kind() const;
};

// Returns whether an object is a wrapper's description, of known or unknown type: a dict with a type and components.
bool is_wrapper_description(const pickle::value& object);

// Decodes and checks a description, in which nothing is trusted.
// \errors errc::unsupported for unknown types; errc::bad_format, errc::shape_mismatch, errc::dtype_mismatch,
//   errc::overflow for a contradictory description
// Cost: O(description).
result<wrapper_form> read_wrapper_form(const pickle::value& description);

// Returns the wrapper's torch.save archive. `bytes` are the components' bytes, each in the memory order of its strides.
// \errors errc::out_of_bounds for indices, offsets, or lengths that lead out of the wrapper; those of the settings
// Cost: O(bytes).
result<std::vector<std::byte>> archive_of_wrapper(const wrapper_form& form,
                                                  std::span<const std::vector<std::byte>> bytes);

// Checks the indices of sparse tensors, and the sizes and offsets of nested ones. PyTorch does not check them when it
// loads them, and later reads the memory that they point to.
result<void> check_wrapper_contents(const wrapper_form& form, std::span<const std::vector<std::byte>> bytes);

}  // namespace shardmesh::torch_file
