// SPDX-License-Identifier: Apache-2.0
// file_texts: the texts that the files of a source carry (safetensors' `__metadata__`), brought together for the
// files of a destination.
export module shardmesh.catalog:file_texts;

import shardmesh.std;
import shardmesh.core;
import :entries;

export namespace shardmesh {

/// Of all texts of a checkpoint: a safetensors header holds no more.
inline constexpr std::int64_t max_text_bytes = 100'000'000;

/// False for what describes the file itself: our checksums and objects, PyTorch's sharding info.
bool is_carried_text(std::string_view key);

/// Merges, file by file. Where two source files have different values for one key, the first stays and a note says so.
class text_merge {
 public:
  explicit text_merge(const catalog& from) : from_(from) {}

  // The texts of one destination file to which these files of the source contribute, and those of the whole source.
  std::vector<std::pair<std::string, std::string>> of(const std::set<std::int32_t>& contributors);
  // The texts of a destination that is one.
  std::vector<std::pair<std::string, std::string>> of_all();
  // One line per key that differs.
  std::vector<std::string> notes() const;

 private:
  std::string name_of(std::int32_t file) const;
  const catalog& from_;
  std::map<std::string, std::set<std::string>> conflicts_;  // key -> the files whose value is not taken
};

}  // namespace shardmesh
