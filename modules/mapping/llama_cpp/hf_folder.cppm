// SPDX-License-Identifier: Apache-2.0
// Not exported: reads the files of a Hugging Face folder that describe its model: the configuration and the tokenizer.
module shardmesh.mapping:hf_folder;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::llama_cpp {

// The folder of a configuration, which may be a URL. Nothing in it is trusted.
class hf_folder {
 public:
  // \param config_file  the configuration: config.json of the folder, or the file that the user named
  explicit hf_folder(std::filesystem::path config_file);

  // Returns the name of the model: that of its folder, or of the repository in the Hugging Face cache.
  std::string model_name() const;
  // Returns the path of a file, for messages.
  std::string path_of(std::string_view name) const;
  // Returns the name of the configuration.
  std::string config_name() const;

  // Reads a file whole. Returns nothing if the folder lacks it.
  // \errors errc::unsafe_path for a link that leads elsewhere, errc::bad_format for a file of more than 64 MiB,
  //         errc::io; each names the file
  result<std::optional<std::string>> read(std::string_view name) const;
  // Reads a file that holds JSON of at most 64 levels.
  // \errors those of `read`, and errc::bad_format for deeper JSON
  result<std::optional<std::string>> read_json(std::string_view name) const;
  result<bool> has(std::string_view name) const;

 private:
  std::filesystem::path config_file_, folder_;
};

}  // namespace shardmesh::llama_cpp
