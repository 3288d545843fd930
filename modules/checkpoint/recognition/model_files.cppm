// SPDX-License-Identifier: Apache-2.0
// Not exported: opens a model in torch.save files, as Hugging Face's libraries wrote it before safetensors:
// pytorch_model.bin alone, or pytorch_model-00001-of-00002.bin and so on with an index. Files of ranks are in
// rank_files.
module shardmesh.checkpoint:model_files;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace shardmesh {

// Opens a folder of such files, or an index file. The index decides which files are read, and is checked against them
// in both directions. Without an index, the model is one whole file or one complete numbered series. A warning names
// variants (".fp16") and other copies, which are not read.
// \errors those of torch_file::open and safetensors::parse_hf_index; errc::bad_format (no such file, a missing file of
//         the series or the index, several models, a tensor that the index does not name), errc::missing_key (an entry
//         is not in the file that the index names), errc::duplicate_key (an entry is in two files); each names the file
//         and the key
result<std::unique_ptr<checkpoint_reader>> open_model_files(const std::filesystem::path& path,
                                                            const open_options& options);

}  // namespace shardmesh
