// SPDX-License-Identifier: Apache-2.0
// Opens a .pt file as a checkpoint. Archives are in `item`.
export module shardmesh.torch_file:reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.checkpoint_core;

export namespace shardmesh::torch_file {

/// Opens a file of `torch.save` (a state dict, nested at will, or any value with tensors in it), a pickle, or the
/// weights of a TorchScript archive. Keys are those that DCP would give. A bare tensor has the key `tensor`; a value
/// that is not a dict and has no tensors has the key `object`. DTensors and ShardedTensors have their whole shape, and
/// the chunks that the file holds. If chunks are missing, a problem says that the files of all ranks are needed.
result<std::unique_ptr<checkpoint_reader>> open(const std::filesystem::path& file, const open_options& options = {});

/// Opens a torch.save file that is one part of a larger state. Its value may be anything (a number, a tensor, a dict),
/// and all keys and paths begin with `name`. Empty dicts are entries. A DTensor appears as its rank's local tensor.
result<std::unique_ptr<checkpoint_reader>> open_part(const std::filesystem::path& file, const std::string& name,
                                                     const open_options& options = {});

/// Opens a torch.save archive that is a part of a file, such as a member of a tar archive, as `open` opens a file.
/// \param file    the path of the whole file, for messages and as the path of the checkpoint
/// \param bytes   the bytes of the archive alone
/// \param offset  where they lie in the file; nothing when the file holds them in another form, such as compressed
result<std::unique_ptr<checkpoint_reader>> open_section(const std::filesystem::path& file,
                                                        std::shared_ptr<const byte_source> bytes,
                                                        std::optional<std::int64_t> offset,
                                                        const open_options& options = {});

/// Whether an empty dict is an entry. In one of several ranks' files, an empty dict may only mean that the entries are
/// in the files of other ranks.
enum class empty_dicts : std::uint8_t { dropped, kept };

/// Opens one of several ranks' torch.save files. Incomplete tensors are then not a problem.
result<std::unique_ptr<checkpoint_reader>> open_rank_file(const std::filesystem::path& file,
                                                          const open_options& options = {},
                                                          empty_dicts empty = empty_dicts::dropped);

}  // namespace shardmesh::torch_file

namespace shardmesh::torch_file {

// A range of a file's bytes that is a torch.save archive. `notes` become notes of the reader. `unread_tensors` are
// those of the file outside of the range.
struct file_run {
  std::int64_t offset = 0, length = 0;
  std::vector<std::string> notes;
  std::int64_t unread_tensors = 0;
};

// Opens such an archive within a file. Without `run`, the whole file is the archive.
result<std::unique_ptr<checkpoint_reader>> open_run(const std::filesystem::path& file, const open_options& options,
                                                    const std::optional<file_run>& run);

}  // namespace shardmesh::torch_file
