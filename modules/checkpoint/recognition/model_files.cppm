// SPDX-License-Identifier: Apache-2.0
// Not exported: a model in files of torch.save, as Hugging Face's libraries wrote it before safetensors:
// pytorch_model.bin alone, or pytorch_model-00001-of-00002.bin .. with an index. Not here: files of ranks (rank_files).
module shardmesh.checkpoint:model_files;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

namespace shardmesh {

// Opens a folder of them, or an index file: the index decides which files, and is held against them in both ways.
// Without one, a whole file or one complete numbered series; variants (".fp16") and what else is a copy is named in a
// warning.
// \errors those of torch_file::open and safetensors::parse_hf_index; errc::bad_format (no such file, a file of the
//         series or of the index is missing, several models, an entry that the index does not name),
//         errc::missing_key (the file that the index names does not have the entry), errc::duplicate_key (two files
//         have it); each names file and key
result<std::unique_ptr<checkpoint_reader>> open_model_files(const std::filesystem::path& path,
                                                            const open_options& options);

}  // namespace shardmesh
