// SPDX-License-Identifier: Apache-2.0
// The sizes of a model, from its configuration.
export module shardmesh.mapping:model_sizes;

import shardmesh.std;
import shardmesh.core;
import :rules;
import :size_expression;

export namespace shardmesh {

/// The numbers from which a mapping computes its sizes.
struct model_sizes {
  named_sizes config;  // of config.json, or of another configuration
  named_sizes given;   // by the user; they replace numbers of `config`, and of the mapping's [sizes] and [captures]
  /// The file of `config`, in the folder of the model: `read_model_sizes` sets it. From this folder, `map_checkpoint`
  /// takes the hyper-parameters and the tokenizer that a file for llama.cpp needs. Empty: it adds none.
  std::filesystem::path config_file = {};

  /// Returns all sizes: the given ones, else the mapping's, else the configuration's. A size whose expression uses a
  /// missing name is left out, and its error is in `missing`.
  /// \errors those of `size_expression::evaluate` except errc::missing_key
  result<named_sizes> resolve(const mapping_rules& mapping, std::map<std::string, error, std::less<>>& missing) const;
};

/// Reads the numbers of a JSON configuration: Hugging Face's config.json, and the params.json of Meta and Mistral. The
/// members of a nested object are named "text_config.hidden_size". true is 1 and false is 0. A text t of the member k
/// is the name "k.t" with the value 1, and a fraction such as 0.75 is "k.fraction" with the value 1. A list l has
/// "l.length", its numbers and texts as "l[0]" and "l[0].t", and "l.has[n]" = 1 for each number n in it. Other values
/// are left out, as are numbers that are not 64-bit integers, and texts with other characters than letters, digits,
/// "_", and ".". The sizes of a params.json also get Hugging Face's names ("hidden_size" for "dim"), and a negative
/// "vocab_size" in it is left out.
/// \errors errc::bad_format for text that is not a JSON object; errc::io; both name the file
result<named_sizes> read_config(const std::filesystem::path& file);

}  // namespace shardmesh
