// SPDX-License-Identifier: Apache-2.0
// Presents components of wrapping tensors (sparse, nested, quantized, torchao's) as the wrappers again, the reverse of
// `component_reader`. Descriptions are decoded in `wrapper_form`.
export module shardmesh.torch_file:wrapped_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

export namespace shardmesh::torch_file {

/// The treatment of an unusable description: an error (`all`), or its object and components stay as they are
/// (`possible`).
enum class to_wrap : std::uint8_t { all, possible };

/// Presents `inner`, which must outlive the result, with a tensor `KEY` of one chunk in place of each description
/// `KEY.wrapper` (docs/formats.md) and its components `KEY.indices`, `KEY.values`. Null when there is no description.
/// The tensor is opaque; `chunk_archive` makes its torch.save archive and compares the checksums of the bytes it reads.
/// PyTorch's DCP cannot store sparse and nested layouts as tensors; their `properties.layout` is not "torch.strided".
/// Nothing in a description is trusted.
/// \errors errc::missing_key for a missing component; errc::dtype_mismatch and errc::shape_mismatch for a component
///   that differs from its description; errc::unsupported for unknown types and settings; errc::bad_format for a
///   contradictory description; errc::duplicate_key when another entry is named KEY; all name the key and the file
/// Cost: reads every object whose key ends with ".wrapper".
result<std::unique_ptr<checkpoint_reader>> wrap_components(checkpoint_reader& inner, to_wrap which = to_wrap::all);

}  // namespace shardmesh::torch_file
