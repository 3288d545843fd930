// SPDX-License-Identifier: Apache-2.0
// Not exported: the reader of one .pt file. Bodies: `reader.cpp` opens files, `reader_entries.cpp` lists their entries,
// and `reader_values.cpp` reads them.
module shardmesh.torch_file:torch_file_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import :component_reader;
import :flatten;
import :item;
import :rank_part;
import :reader;
import :root_entries;

namespace shardmesh::torch_file {

class torch_file_reader final : public checkpoint_reader, public file_of_ranks, public opaque_values {
 public:
  // `part`: the first step of all keys, in a file that is a part of a larger state.
  torch_file_reader(std::filesystem::path file, const open_options& options, std::optional<std::string> part = {});

  // `run`: the range of the file's bytes that is the archive.
  result<void> open(const std::optional<file_run>& run);

  // Opens an archive within the file. `offset`: its place there, if the file holds its bytes as they are.
  result<void> open_bytes(std::shared_ptr<const byte_source> bytes, std::optional<std::int64_t> offset);

  // Reads the description of the archive in `source_`.
  result<void> read_item();

  // Makes empty dicts entries.
  void keep_empty() { root_.keeps_empty = true; }

  // Reports the missing ranks when the file of one rank is opened alone.
  void say_what_is_missing();
  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override;
  std::int64_t ranks() const override { return ranks_; }

  result<object_value> read_object(std::size_t index) override;

  // The result refers to members of this reader and is valid as long as the reader.
  result<opened_value> open_opaque(std::size_t tensor) override;

  // Returns the object's part of the pickle as an archive. Refuses objects with tensors, which need storages as well.
  result<std::vector<std::byte>> object_archive(std::size_t index) override;

  // Plain data lies in the pickle, which was checked when the file was opened. This checks the rest: the storages of
  // tensors inside objects and of opaque tensors.
  check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options) override;
  result<std::optional<digest128>> content_of(const whole_entry& entry) override;

 private:
  pickle::value value_of(const whole_entry& entry) const;

  // Views may repeat stored elements (zeros(1).expand(2**38)), and many may share one storage. Reading stops at the
  // tensor that takes the total past the plausible size.
  void find_expanded();
  result<void> list();
  result<void> add(flat_entry entry);
  void add_chunk(const box& where, std::size_t tensor, const box& local);

  // Adds the chunks of a DTensor or ShardedTensor that are in this file. Other values, and those whose chunks cannot be
  // read, stay opaque.
  result<void> add_part(const flat_entry& entry);

  // A chunk: a box of one of the item's tensors.
  struct chunk_place {
    std::size_t tensor = 0;
    box local;
  };

  file_pool pool_;
  root_options root_;
  std::shared_ptr<const byte_source> source_;
  std::int64_t begin_ = 0;     // of the archive in the file
  bool is_rewritten_ = false;  // `source_` is the file's pickle with plain bytes, or a decoded part of the file
  bool is_decoded_ = false;    // the latter: a read that goes back starts over
  std::unique_ptr<item> item_;
  std::vector<pickle::value> objects_;
  std::unordered_map<std::size_t, pickle::value> opaque_tensors_;  // by index into the catalog
  std::vector<chunk_place> chunks_;
  std::int64_t ranks_ = 1;
  // The first incomplete tensor: its index, and which rank's part it is.
  std::optional<std::pair<std::size_t, std::string>> first_part_;
  read_budget budget_;
  std::int32_t first_expanded_ = std::numeric_limits<std::int32_t>::max();
  std::optional<error> expanded_;
};

}  // namespace shardmesh::torch_file
