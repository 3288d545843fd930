// SPDX-License-Identifier: Apache-2.0
// Not exported: the settings beside a tokenizer: tokenizer_config.json, added_tokens.json, and the chat templates.
module shardmesh.mapping:tokenizer_settings;

import shardmesh.std;
import shardmesh.core;
import :hf_folder;
import :hf_tokenizer;

namespace shardmesh::llama_cpp {

struct chat_template {
  std::string name;  // "default" is the one without a choice
  std::string text;
};

struct tokenizer_settings {
  bool has_config = false;                                // tokenizer_config.json is there
  std::map<std::string, std::string, std::less<>> texts;  // of special tokens: "bos" and its text
  std::map<std::string, bool, std::less<>> adds;          // "bos": add_bos_token
  std::optional<bool> adds_prefix_space;
  std::vector<added_token> added;       // of tokenizer_config.json
  std::vector<added_token> named_only;  // of added_tokens.json, which has no more than texts and ids
  std::vector<chat_template> chat_templates;
  std::vector<std::string> notes;
};

// Reads the settings; files that are not there have none.
// \errors those of `hf_folder`; errc::bad_format for a file that is not a JSON object, errc::out_of_bounds for an
//         invalid id; each names the file
result<tokenizer_settings> read_settings(const hf_folder& folder);

}  // namespace shardmesh::llama_cpp
