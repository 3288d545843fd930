// SPDX-License-Identifier: Apache-2.0
// Not exported: what a description (docs/formats.md) says of a wrapping tensor, checked, and the wrapper's archive made
// of that and of its components' bytes. Not here: taking a wrapper apart (known_wrapper), where components are stored
// (wrapped_reader).
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
  extents strides;  // of its memory: a permutation of contiguous ones
};

// Everything but the components' bytes. Values are of the description's graph, which must outlive this.
struct wrapper_form {
  wrapper_family family = wrapper_family::coo;
  std::string type;  // "torch.sparse_coo", "torchao.quantization.Int8Tensor"
  std::vector<component_form> components;
  std::optional<bool> parameter;  // it is a torch.nn.Parameter, and whether that requires a gradient
  extents size;
  std::optional<bool> is_coalesced;               // coo
  const compressed_layout* layout = nullptr;      // compressed
  const quantized_dtype* quantized = nullptr;     // quantized
  pickle::value scale, zero_point;                // quantized per tensor
  std::int64_t axis = -1;                         // quantized per channel
  std::int64_t ragged_dimension = 0;              // jagged
  std::optional<std::int64_t> shortest, longest;  // jagged, where they were known
  bool is_parameter = false;                      // jagged
  bool requires_grad = false;                     // jagged, subclass, quantized
  const wrapper_class* subclass = nullptr;        // subclass
  dtype element_type = dtype::undefined;          // as it shows itself; undefined where it is `quantized`
  extents strides;                                // subclass
  pickle::value attributes, order;  // subclass: a dict of spelled settings; the names of the state in order

  const component_form* find(std::string_view name) const;
  // For people: "sparse COO tensor".
  std::string kind() const;
};

// Whether an object is the description of a wrapper, of whatever type: a dict with a type and components.
bool is_wrapper_description(const pickle::value& object);

// \errors errc::unsupported for types that we do not know; errc::bad_format, errc::shape_mismatch, errc::dtype_mismatch,
//   errc::overflow where the description contradicts itself. Nothing of it is trusted. Cost: O(description).
result<wrapper_form> read_wrapper_form(const pickle::value& description);

// The wrapper as torch.save writes it. `bytes` are the components', each in the memory order of its strides.
// \errors errc::out_of_bounds where indices, offsets or lengths lead out of the wrapper; those of the settings.
// Cost: O(bytes).
result<std::vector<std::byte>> archive_of_wrapper(const wrapper_form& form,
                                                  std::span<const std::vector<std::byte>> bytes);

// Indices of sparse tensors, sizes and offsets of nested ones: PyTorch does not look at them when it loads, and reads
// where they point to.
result<void> check_wrapper_contents(const wrapper_form& form, std::span<const std::vector<std::byte>> bytes);

}  // namespace shardmesh::torch_file
