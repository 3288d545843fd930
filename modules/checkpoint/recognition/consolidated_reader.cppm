// SPDX-License-Identifier: Apache-2.0
// Not exported: the files of Meta's model-parallel ranks as one checkpoint. Bodies: `consolidated_files.cpp` opens and
// checks the files, and `consolidated_merge.cpp` merges the entries of one key.
module shardmesh.checkpoint:consolidated_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :consolidated_cut;
import :consolidated_sizes;

namespace shardmesh {

class consolidated_reader final : public composed_reader {
 public:
  explicit consolidated_reader(const std::filesystem::path& folder)
      : composed_reader(checkpoint_format::torch_files, folder) {}

  result<void> open(const open_options& options);

 private:
  std::filesystem::path params_file() const { return path_ / "params.json"; }
  std::int64_t count() const { return static_cast<std::int64_t>(part_count()); }
  const catalog& contents_of(std::size_t part) { return this->part(part).contents(); }
  std::string file_of(std::size_t part) { return this->part(part).path().string(); }
  std::string name_of(std::size_t part) { return this->part(part).path().filename().string(); }
  error at(error problem, const std::string& key, std::size_t part);
  result<void> check_complete(const std::map<std::int64_t, std::string>& files) const;

  // A download that was interrupted after the first file has its name, but not the shapes that params.json states.
  result<void> check_only_file();
  bool are_disjoint();
  result<void> add_all();
  result<void> check_same_keys();

  // Checks that the entries of `part` are entries of `other`, of the same kind.
  result<void> check_has_keys(std::size_t part, std::size_t other);

  // Takes the size of the vocabulary from an embedding whose columns are cut, if params.json does not state it.
  void learn_vocabulary(consolidated_sizes& sizes);

  // The position of the tensor with this key in a part's catalog. Precondition: the part has it.
  std::size_t position_of(const std::string& key, std::size_t part);

  // Merges the parts of the first file's tensor `index`.
  result<void> merge_tensor(std::size_t index, const consolidated_sizes& sizes);
  result<void> check_same_form(const tensor_entry& a, const tensor_entry& b);
  result<void> merge_parts(const std::vector<std::size_t>& positions, const consolidated_cut& cut);

  // Adds a tensor that is not cut. It must be equal in all files, except copies that training did not keep equal.
  result<void> merge_copies(const std::vector<std::size_t>& positions);

  // True when the first file's tensor equals that of another file. Precondition: they have the same form.
  result<bool> are_equal(std::size_t index, std::size_t other, std::size_t other_index);
  result<void> merge_object(std::size_t index);

  // Adds an entry for each file.
  result<void> add_each(const std::vector<std::size_t>& positions, bool are_tensors);
  void warn_of_copies();

  std::vector<std::string> differing_;  // keys of differing copies of which the first file's is read
};

}  // namespace shardmesh
