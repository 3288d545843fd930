// SPDX-License-Identifier: Apache-2.0
// Merges the texts that a source's files carry (safetensors' `__metadata__`) for the files of a destination.
export module shardmesh.checkpoint_core:file_texts;

import shardmesh.std;
import shardmesh.core;
import :entries;

export namespace shardmesh {

/// The limit on all texts of a checkpoint together: a safetensors header holds no more.
inline constexpr std::int64_t max_text_bytes = 100'000'000;

/// Returns false for a text that describes the file itself: our checksums and objects, PyTorch's sharding info.
bool is_carried_text(std::string_view key);

/// Merges texts file by file. When source files have different values for one key, the first value is kept and a note
/// reports the conflict.
class text_merge {
 public:
  explicit text_merge(const catalog& from) : from_(from) {}

  // Returns the texts of one destination file: those of the source files that contribute to it, and those of the whole
  // source.
  std::vector<std::pair<std::string, std::string>> of(const std::set<std::int32_t>& contributors);
  // Returns the texts of a destination that is a single file.
  std::vector<std::pair<std::string, std::string>> of_all();
  // Returns one line per key whose values differ.
  std::vector<std::string> notes() const;

 private:
  std::string name_of(std::int32_t file) const;
  const catalog& from_;
  std::map<std::string, std::set<std::string>> conflicts_;  // key -> the files whose value was dropped
};

}  // namespace shardmesh
