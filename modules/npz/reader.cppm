// SPDX-License-Identifier: Apache-2.0
// Opens .npz archives, .npy files, and MLX folders of weights.npz as checkpoints. An array's header is parsed in
// array_header.
export module shardmesh.npz:reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

export namespace shardmesh::npz {

/// The record that holds the objects of a checkpoint that shardmesh wrote, as one document (safetensors'
/// `format_objects`). NumPy shows its bytes under this name.
inline constexpr std::string_view objects_record = "shardmesh.objects.json";
/// The ending of a record that is an array. The rest of its name is the array's key.
inline constexpr std::string_view array_ending = ".npy";

/// Opens one .npz archive, or one .npy file, whose array has the key `tensor`. Records may be stored or deflated,
/// arrays in either byte order, in C or Fortran order. Arrays whose types shardmesh lacks (Python objects, texts,
/// dates, records, raw bytes) are opaque tensors: they are listed, compared, and checked, but not read. Other records
/// are named in a warning.
/// \errors those of `torch_file::open_archive`. An array with a malformed header, or one that leaves its record, is one
///   of the reader's problems.
/// Cost: the directory of the archive, and one read per array. Elements are not read.
/// Source: numpy/lib/_npyio_impl.py
result<std::unique_ptr<checkpoint_reader>> open(const std::filesystem::path& file, const open_options& options = {});

/// Opens an MLX folder: weights.npz, or weights.00.npz, weights.01.npz, and so on without a gap.
/// \errors those of `open`; errc::bad_format for a missing file of the series; errc::duplicate_key for a key
///   in two files
result<std::unique_ptr<checkpoint_reader>> open_folder(const std::filesystem::path& folder,
                                                       const open_options& options = {});

/// Returns true for the names of an MLX folder's files: "weights.npz" and "weights.00.npz".
bool is_weights_name(std::string_view name);

/// Returns true when the file begins as a .npy array does, or as a ZIP archive whose first record is one or is
/// `objects_record`.
result<bool> looks_like_npz(const std::filesystem::path& file);

}  // namespace shardmesh::npz
