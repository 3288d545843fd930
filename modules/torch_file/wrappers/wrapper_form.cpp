// SPDX-License-Identifier: Apache-2.0
// Descriptions of wrappers. Sizes must agree with the components, because PyTorch trusts the sizes in a file.
module;
#include <string>
#include <string_view>
module shardmesh.torch_file;

import :form_reader;
import :wrapper_form;

namespace shardmesh::torch_file {

const component_form* wrapper_form::find(std::string_view name) const {
  for (const component_form& component : components)
    if (component.name == name) return &component;
  return nullptr;
}

std::string wrapper_form::kind() const {
  if (type.starts_with("torch.sparse_")) {
    std::string layout_name = type.substr(std::string_view("torch.sparse_").size());
    for (char& c : layout_name) c = static_cast<char>(c - 'a' + 'A');
    return "sparse " + layout_name + " tensor";
  }
  if (type == "torch.nested" || type == "torch.jagged") return "nested tensor";
  if (type.ends_with("_affine")) return "quantized tensor";
  return "tensor subclass " + type;
}

bool is_wrapper_description(const pickle::value& object) {
  return object.kind() == pickle::kind::dict && object.find("type").text() &&
         (object.find("components").kind() == pickle::kind::dict ||
          object.find("components").kind() == pickle::kind::list);
}

result<wrapper_form> read_wrapper_form(const pickle::value& description) {
  return form_reader(description).read();
}

}  // namespace shardmesh::torch_file
