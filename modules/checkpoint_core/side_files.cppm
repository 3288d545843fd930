// SPDX-License-Identifier: Apache-2.0
// Finds the files beside a checkpoint in its folder, and copies them into a destination of the same family of formats.
// Examples: config.json and the tokenizer of a Hugging Face folder, Megatron's common.pt and metadata.json, and
// Lightning's meta.pt. `sidecar_metadata` decides which conversions copy them. A safetensors file's own texts are in
// `file_texts`.
export module shardmesh.checkpoint_core:side_files;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :entries;

export namespace shardmesh {

/// A file to be copied verbatim, under a plain file name.
struct side_file {
  std::string name;
  std::filesystem::path from;
};

struct side_files {
  std::vector<side_file> files;   // by name: of a known kind, regular, not too large
  std::vector<std::string> left;  // everything else, by name, with any special reason in brackets
};

/// Finds the files of `folder` beside the checkpoint that `contents` describes, whatever its format. Subfolders that
/// hold files of the checkpoint are searched, but only to list their other files in `left`. Known kinds: .json, .yaml,
/// .txt, .md, .model, .jinja, .py and a few more, names that begin with "tokenizer", "LICENSE", "README" or "NOTICE",
/// common.pt, and meta.pt.
///
/// Symbolic links are followed when they end in the folder itself or, from a snapshot of the Hugging Face cache, in the
/// "blobs" of the same repository. Other links could name any file of the machine and are not copied. Names that begin
/// with a dot are neither copied nor mentioned: copying and versioning tools create such files.
/// \errors errc::io when the folder cannot be listed.
result<side_files> find_side_files(const std::filesystem::path& folder, const catalog& contents);

/// Returns "not copied: a.bin, b (a link that leads elsewhere) and 3 more", with at most 10 names. Precondition:
/// `names` is not empty.
std::string not_copied_note(std::span<const std::string> names);

/// Copies the files into a staged directory, and appends their checksums to `ranges`.
/// \errors errc::io; errc::bad_format for a file that is not regular or has grown beyond the limit
result<void> copy_side_files(staged_output& output, std::span<const side_file> files,
                             std::vector<checksum_range>& ranges);

}  // namespace shardmesh

// Exported for other rooms; not for users.
export namespace shardmesh::detail {

// Returns whether a symbolic link ends in the folder, or where the Hugging Face cache keeps the targets of its
// snapshots' links. Other links could name any file of the machine.
bool is_safe_link(const std::filesystem::path& link, const std::filesystem::path& folder);

}  // namespace shardmesh::detail
