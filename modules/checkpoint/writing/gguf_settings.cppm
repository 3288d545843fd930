// SPDX-License-Identifier: Apache-2.0
// Not exported: chooses the type of each tensor of a GGUF file by the rules of a conversion, and finds the blocks of
// the source that can be copied unchanged.
module shardmesh.checkpoint:gguf_settings;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import shardmesh.gguf;
import :conversion;
import :quantize_rule;

namespace shardmesh {

// Returns the settings for the tensors of `work`, in their order. Adds notes to `work`. The reader must outlive the
// result.
// \errors errc::invalid_argument for a rule with a pattern that matches no key
result<gguf::file_options> gguf_settings(const checkpoint_reader& reader, conversion& work,
                                         std::span<const quantize_rule> rules);

}  // namespace shardmesh
