// SPDX-License-Identifier: Apache-2.0
// reader: a .pt file as a checkpoint. Not here: the archive (item).
export module shardmesh.torch_file:reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

export namespace shardmesh::torch_file {

/// A file that `torch.save` wrote (a state dict, nested at will, or anything else with tensors in it), a pickle, a
/// TorchScript archive, of which the weights are read. Keys are those that DCP would give; a bare tensor is `tensor`,
/// an object that is no container of tensors `object`. DTensors and ShardedTensors have their whole shape and the
/// chunks that the file holds of it; where that is not all, a problem says that the files of all ranks are needed.
result<std::unique_ptr<checkpoint_reader>> open(const std::filesystem::path& file, const open_options& options = {});

/// A file of torch.save that is one part of a larger state: its value may be anything (a number, a tensor, a dict), and
/// all keys and paths begin with `name`. An empty dict in it is an entry. A DTensor in it is seen as the local tensor
/// that its rank held.
result<std::unique_ptr<checkpoint_reader>> open_part(const std::filesystem::path& file, const std::string& name,
                                                     const open_options& options = {});

/// Whether an empty dict is an entry. Of one of several ranks' files it may say no more than that others have what is
/// in it.
enum class empty_dicts : std::uint8_t { dropped, kept };

/// A file of torch.save that is one rank's among several: that its tensors are not whole is no problem of it.
result<std::unique_ptr<checkpoint_reader>> open_rank_file(const std::filesystem::path& file,
                                                          const open_options& options = {},
                                                          empty_dicts empty = empty_dicts::dropped);

}  // namespace shardmesh::torch_file

namespace shardmesh::torch_file {

// A run of a file's bytes that is an archive of torch.save; the notes are said of what is read from it.
struct file_run {
  std::int64_t offset = 0, length = 0;
  std::vector<std::string> notes;
};

// The same of an archive that lies within a file.
result<std::unique_ptr<checkpoint_reader>> open_run(const std::filesystem::path& file, const open_options& options,
                                                    const std::optional<file_run>& run);

}  // namespace shardmesh::torch_file
