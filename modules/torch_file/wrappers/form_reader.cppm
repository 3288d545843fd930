// SPDX-License-Identifier: Apache-2.0
// Not exported: decodes the description of a wrapping tensor. The description of each family is decoded in a file of
// its own: `sparse_form`, `nested_form`, `quantized_form`, and `subclass_form`.
module shardmesh.torch_file:form_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import :wrapper_form;

namespace shardmesh::torch_file {

class form_reader {
 public:
  explicit form_reader(const pickle::value& description) : given_(description) {}
  result<wrapper_form> read() &&;

 private:
  static error bad(std::string message);
  // Decodes the non-negative numbers of a torch.Size, tuple, or list.
  static std::optional<extents> numbers_of(pickle::value value);

  result<void> read_components();
  result<void> read_parameter();
  result<void> read_family();
  result<void> read_size();
  // Requires exactly these components in this order. `optional` may follow.
  result<void> expect(std::initializer_list<std::string_view> names, std::string_view optional = {});
  result<void> check_type(std::string_view component, std::initializer_list<dtype> allowed) const;
  error misfit(std::string_view component, const extents& expected) const;

  // The families of wrappers.
  result<void> read_coo();
  result<void> read_compressed();
  result<void> read_nested();
  result<void> read_jagged();
  result<void> read_quantized();
  result<void> read_subclass();
  bool fits(const extents& strides, dtype type) const;
  result<void> check_order() const;

  const pickle::value given_;
  wrapper_form made_;
};

}  // namespace shardmesh::torch_file
