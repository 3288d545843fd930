// SPDX-License-Identifier: Apache-2.0
// Not exported: a model in the files of Meta's model-parallel ranks (consolidated.00.pth and so on, with params.json),
// as one checkpoint of whole tensors. The rules are in consolidated_cut. Files of ranks that describe their own parts
// are in rank_files.
module shardmesh.checkpoint:consolidated_files;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace shardmesh {

// Opens all consolidated.NN.pth of a folder. A single file is read as it is, if its shapes are those of params.json. So
// are files of which no two have an entry in common (Mixtral's). Otherwise, all files must have the same keys. A tensor
// that is cut by its name is merged; any other tensor must be equal in all files. A warning names norms and other
// copies that differ: the first file's are read. Statistics of training and objects of unknown types may also differ:
// each file's becomes an entry of its own, with ".rank_N" appended to the key.
// \errors errc::incomplete_save for a missing number; errc::missing_key for an entry that a file lacks;
//         errc::disagreement for values that differ; errc::dtype_mismatch, errc::shape_mismatch, errc::unsupported;
//         those of list_consolidated_files, read_consolidated_sizes, cut_of, and torch_file::open; each names the file,
//         and the key if it concerns one
// Cost: reads the tensors that are not cut, unless their stored checksums are equal.
result<std::unique_ptr<checkpoint_reader>> open_consolidated_files(const std::filesystem::path& folder,
                                                                   const open_options& options);

}  // namespace shardmesh
