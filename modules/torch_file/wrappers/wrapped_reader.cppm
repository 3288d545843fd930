// SPDX-License-Identifier: Apache-2.0
// wrapped_reader: a checkpoint whose components of wrapping tensors (sparse, nested, quantized, torchao's) are seen as
// the wrappers again: the way back from component_reader. Not here: what a description says (wrapper_form).
export module shardmesh.torch_file:wrapped_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

export namespace shardmesh::torch_file {

/// Whether every description has to be one that can be followed; others stay, beside their components, where not.
enum class to_wrap : std::uint8_t { all, possible };

/// `inner`, which must outlive the result, with a tensor `KEY` of one chunk in the place of each object `KEY.wrapper`
/// that describes one (docs/formats.md) and of its components `KEY.indices`, `KEY.values`; null when there is none. The
/// tensor is opaque; `chunk_archive` makes what torch.save writes of it, and compares the checksums of what it reads.
/// PyTorch's DCP has no tensors of sparse and nested layouts: `properties.layout` of these is not "torch.strided".
/// \errors errc::missing_key where a component is not there, errc::dtype_mismatch and errc::shape_mismatch where it is
///         not the one that was described, errc::unsupported for types and settings that we do not know,
///         errc::bad_format for a description that contradicts itself, errc::duplicate_key where another entry is KEY;
///         all name key and file. Nothing of a description is trusted.
/// Cost: reads every object whose key ends with ".wrapper".
result<std::unique_ptr<checkpoint_reader>> wrap_components(checkpoint_reader& inner, to_wrap which = to_wrap::all);

}  // namespace shardmesh::torch_file
