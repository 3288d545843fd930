// SPDX-License-Identifier: Apache-2.0
// Not exported: writes the description of a wrapper. The checks of descriptions that are read are in `form_reader`.
module shardmesh.torch_file:wrapper_description;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import :item;

namespace shardmesh::torch_file {

// A tensor inside a wrapper, with PyTorch's name for it: "indices".
struct wrapper_component {
  std::string name;
  std::size_t tensor = 0;  // index into the item's tensors
};

struct wrapper_parts {
  std::vector<wrapper_component> components;
  // A torch.save archive of a dict with everything else that is needed to rebuild the wrapper.
  std::vector<std::byte> description;
};

// A dict whose last entry is the components.
class wrapper_description {
 public:
  explicit wrapper_description(std::string_view type);
  void add(std::string_view key, const pickle::value& value);
  void add_flag(std::string_view key, bool value);
  void add_number(std::string_view key, std::int64_t value);
  void add_text(std::string_view key, std::string_view value);
  void add_settings(std::span<const pickle::pair> pairs);
  void add_names(std::string_view key, std::span<const std::string_view> names);

  std::optional<wrapper_parts> finish(const torch_file::item& item, std::vector<wrapper_component> components) &&;

 private:
  void add_list(std::string_view key, const extents& numbers);

  pickle::writer out_{2};
  bool is_writable_ = true;
};

}  // namespace shardmesh::torch_file
