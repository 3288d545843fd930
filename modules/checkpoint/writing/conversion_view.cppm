// SPDX-License-Identifier: Apache-2.0
// Not exported: shows a source in a form that a destination can hold: objects and wrapping tensors are split or
// recombined. The counterpart for comparing two sources is comparable_views.
module shardmesh.checkpoint:conversion_view;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import shardmesh.transfer;
import shardmesh.torch_file;
import :conversion;

namespace shardmesh {

class conversion_view {
 public:
  explicit conversion_view(checkpoint_reader& given) : last_(&given) {}
  // Returns the view of the given reader, which must outlive this object.
  checkpoint_reader& last() const { return *last_; }

  // Splits entries for `convert`. Pickles keep objects with tensors in them, and wrapping tensors, unless `components`
  // is set.
  result<void> take_apart(bool to_pickles, bool components);
  // Gives archives to the wrapping tensors of a .pt file that have none, by splitting and recombining them. A source
  // without such tensors keeps the components that it stores.
  result<void> give_archives();
  // Returns true when an entry of `last` is a component of a tensor that `take_apart` split.
  bool is_component(std::string_view key) const;
  // Returns notes that name the tensors of `work` that are written as components, or rebuilt from components that the
  // source stores. The sources of `work` are entries of `last`.
  std::vector<std::string> notes_of_components(const conversion& work) const;
  // Returns a note that names the tensors that `take_apart` split and that cannot be recombined from the output of
  // `work`, because a rule or a merge changed their components.
  std::optional<std::string> note_of_lost_ways_back(const conversion& work) const;
  // Passes the readers on to the caller. Each wraps the one before it.
  std::vector<std::shared_ptr<checkpoint_reader>> release() { return std::move(readers_); }

 private:
  // A null reader changes nothing.
  result<void> add(result<std::unique_ptr<checkpoint_reader>> made);
  // Recombines components into wrapping tensors. The source stores those of the descriptions in `whole` as one value.
  result<void> recombine(const std::set<std::size_t>& whole);

  std::vector<std::shared_ptr<checkpoint_reader>> readers_;
  checkpoint_reader* last_;
  std::vector<torch_file::unwrapped_tensor> apart_;  // ascending
  std::vector<std::size_t> rebuilt_;                 // tensors of `last` whose components the source stores
};

// Turns tensors of sparse and nested layouts into objects: PyTorch's DCP has no such tensors.
void make_objects_of_layouts(conversion& work);

}  // namespace shardmesh
