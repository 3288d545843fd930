// SPDX-License-Identifier: Apache-2.0
// Not exported: a source as a destination can hold it: objects and wrapping tensors taken apart, or put together. Not
// here: two sources that are compared (alike_readers).
module shardmesh.checkpoint:seen_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;
import shardmesh.transfer;
import shardmesh.torch_file;
import :conversion;

namespace shardmesh {

class seen_reader {
 public:
  explicit seen_reader(checkpoint_reader& given) : last_(&given) {}
  // What the given one, which must outlive this, is seen as.
  checkpoint_reader& last() const { return *last_; }

  // For `convert`. Pickles hold objects with tensors in them, and wrapping tensors, unless `components` are wanted.
  result<void> take_apart(bool to_pickles, bool components);
  // Wrapping tensors without an archive of their own, of a .pt file, get one: they are taken apart and put together.
  // Components that lie in the source as such stay.
  result<void> give_archives();
  // Whether an entry of `last` is a component of a tensor that `take_apart` took apart.
  bool is_component(std::string_view key) const;
  // Of the tensors that `take_apart` took apart, as `work` writes them: a line where a rule or a merge leaves
  // components that nobody can put together again.
  std::optional<std::string> note_of_lost_ways_back(const conversion& work) const;
  // Readers that are owned by the caller from now on; each shows the one before it.
  std::vector<std::shared_ptr<checkpoint_reader>> release() { return std::move(readers_); }

 private:
  // Null: the last one stays.
  result<void> add(result<std::unique_ptr<checkpoint_reader>> made);

  std::vector<std::shared_ptr<checkpoint_reader>> readers_;
  checkpoint_reader* last_;
  std::vector<torch_file::unwrapped_tensor> apart_;
};

// PyTorch's DCP has no tensors of sparse and nested layouts: they are objects there.
void make_objects_of_layouts(conversion& work);

}  // namespace shardmesh
