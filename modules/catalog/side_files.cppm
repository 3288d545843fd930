// SPDX-License-Identifier: Apache-2.0
// side_files: what lies in a checkpoint's folder beside the checkpoint: config.json and the tokenizer of a Hugging Face
// folder, Megatron's common.pt and metadata.json, Lightning's meta.pt. Found here, and copied into a destination of the
// same family. Not here: which conversion takes them (carried), a safetensors file's own texts (file_texts).
export module shardmesh.catalog:side_files;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :entries;

export namespace shardmesh {

/// The largest side file that is copied.
inline constexpr std::int64_t max_side_file_bytes = std::int64_t{1} << 30;

/// A file to be copied verbatim, under a plain file name.
struct side_file {
  std::string name;
  std::filesystem::path from;
};

struct side_files {
  std::vector<side_file> files;   // by name: of a known kind, regular, not too large
  std::vector<std::string> left;  // everything else, by name, with the reason in brackets where there is a special one
};

/// What `folder` holds beside the checkpoint that `contents` describes, whatever its format; folders that hold files of
/// it are looked in, and what lies there beside them is left. Known kinds: .json, .yaml, .txt, .md, .model,
/// .jinja, .py and a few more, names that begin with "tokenizer", "LICENSE", "README" or "NOTICE", common.pt, meta.pt.
/// Symbolic links are followed when they end in the folder itself or, from a snapshot of the Hugging Face cache, in the
/// "blobs" of the same repository; others could name any file of the machine and are left. Names that begin with a dot
/// are neither taken nor mentioned: they are what copying and versioning tools leave.
/// \errors errc::io when the folder cannot be listed.
result<side_files> find_side_files(const std::filesystem::path& folder, const catalog& contents);

/// "not copied: a.bin, b (a link that leads elsewhere) and 3 more"; at most 10 names. Precondition: `names` is not
/// empty.
std::string not_copied_note(std::span<const std::string> names);

/// Copies them into a staged directory, and appends their checksums to `ranges`. errc::io; errc::invalid_argument for a
/// file that is no regular one or has grown beyond the limit.
result<void> copy_side_files(staged_output& output, std::span<const side_file> files,
                             std::vector<checksum_range>& ranges);

}  // namespace shardmesh
