// SPDX-License-Identifier: Apache-2.0
// The one table of names that a pickle may hold without a report: those that torch.save, DCP, and numpy write for
// tensors, containers, and scalars. Calling a listed name, with any arguments that this table can make, only builds
// data. Deliberately absent: torch.storage._load_from_bytes (runs another pickle), builtins.getattr (see
// names.cpp), functools.partial, and anything that takes a callback as a plain argument.
module;
#include <algorithm>
#include <array>
#include <string_view>
module shardmesh.pickle;

namespace shardmesh::pickle {
namespace {

// The names of one module, separated by blanks.
struct known_names {
  std::string_view module_name, names;
};

constexpr auto table = std::to_array<known_names>({
    {"builtins", "bool bytearray bytes complex dict float frozenset int list object range set slice str tuple"},
    {"_codecs", "encode"},
    {"collections", "Counter OrderedDict defaultdict deque"},
    {"copyreg", "_reconstructor"},
    {"argparse", "Namespace"},
    {"types", "SimpleNamespace"},
    {"datetime", "date datetime time timedelta timezone"},
    {"decimal", "Decimal"},
    {"fractions", "Fraction"},
    {"uuid", "UUID SafeUUID"},
    {"pathlib", "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath"},
    {"pathlib._local", "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath"},
    {"numpy", "dtype ndarray"},
    {"numpy.core.multiarray", "_reconstruct scalar"},
    {"numpy._core.multiarray", "_reconstruct scalar"},
    {"numpy.core.numeric", "_frombuffer"},
    {"numpy._core.numeric", "_frombuffer"},
    {"torch",
     // parse_dtype knows the dtypes that we have; these are the others of PyTorch 2.13.
     "qint8 quint8 qint32 quint4x2 quint2x4 bit int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 "
     "uint7 "
     "Size Tensor device strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc jagged _mkldnn "
     "per_tensor_affine per_channel_affine per_tensor_symmetric per_channel_symmetric "
     "per_channel_affine_float_qparams contiguous_format preserve_format channels_last channels_last_3d"},
    {"torch._tensor", "Tensor _rebuild_from_type_v2"},
    {"torch.nn.parameter", "Buffer Parameter UninitializedBuffer UninitializedParameter"},
    {"torch.nn", "Buffer Parameter"},
    {"torch._utils",
     "_rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3 _rebuild_parameter _rebuild_parameter_with_state "
     "_rebuild_sparse_tensor _rebuild_sparse_csr_tensor _rebuild_nested_tensor _rebuild_qtensor "
     "_rebuild_meta_tensor_no_storage "
     "_rebuild_device_tensor_from_numpy _rebuild_device_tensor_from_cpu_tensor _rebuild_wrapper_subclass"},
    {"torch.serialization", "_get_layout"},
    {"torch.storage", "TypedStorage UntypedStorage _TypedStorage _UntypedStorage"},
    {"torch.distributed.checkpoint.metadata",
     "BytesStorageMetadata ChunkStorageMetadata Metadata MetadataIndex StorageMeta TensorProperties "
     "TensorStorageMetadata _MEM_FORMAT_ENCODING"},
    {"torch.distributed._shard.checkpoint.metadata",
     "BytesStorageMetadata ChunkStorageMetadata Metadata MetadataIndex TensorStorageMetadata"},
    {"torch.distributed._shard.checkpoint.filesystem", "_StorageInfo"},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo _StoragePrefix"},
    {"torch.distributed.checkpoint.planner", "SavePlan TensorWriteData WriteItem WriteItemType BytesIOWriteData"},
    {"torch.distributed._shard.sharded_tensor.metadata", "MEM_FORMAT_ENCODING ShardedTensorMetadata TensorProperties"},
    {"torch.distributed._shard.sharded_tensor.api", "ShardedTensor ShardedTensorBase"},
    {"torch.distributed._shard.sharded_tensor.shard", "Shard"},
    {"torch.distributed._shard.metadata", "ShardMetadata"},
    {"torch.distributed._shard.sharding_spec.api", "EnumerableShardingSpec"},
    {"torch.distributed._shard.sharding_spec.chunk_sharding_spec", "ChunkShardingSpec"},
    {"torch.distributed.remote_device", "_remote_device"},
    {"torch.distributed.device_mesh", "DeviceMesh"},
    {"torch.distributed._mesh_layout", "_FlatLayout _MeshLayout"},
    {"torch.distributed.tensor", "DTensor"},
    {"torch.distributed.tensor._api", "DTensor"},
    {"torch.distributed._tensor.api", "DTensor"},
    {"torch.distributed.tensor._dtensor_spec", "DTensorSpec ShardOrderEntry TensorMeta"},
    {"torch.distributed._tensor.placement_types",
     "DTensorSpec Partial Replicate Shard TensorMeta _Partial _StridedShard"},
    {"torch.distributed.tensor.placement_types", "Partial Replicate Shard _StridedShard"},
});

// Returns true when `name` is one of the blank-separated words.
bool is_word_of(std::string_view words, std::string_view name) {
  for (std::size_t at = words.find(name); at != std::string_view::npos; at = words.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' ')) return true;
  }
  return false;
}

// Matches torch.FloatStorage, torch.cuda.HalfStorage, and the rest of that family.
bool is_storage_class(std::string_view module_name, std::string_view name) {
  if ((module_name != "torch" && module_name != "torch.cuda" && module_name != "torch.storage") ||
      !name.ends_with("Storage"))
    return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
}

}  // namespace

bool is_harmless_global(std::string_view module_name, std::string_view name) {
  if (name.empty() || name.find(' ') != std::string_view::npos) return false;
  if (module_name == "torch" && parse_dtype(name)) return true;
  if (is_storage_class(module_name, name)) return true;
  return std::any_of(table.begin(), table.end(), [&](const known_names& known) {
    return known.module_name == module_name && is_word_of(known.names, name);
  });
}

}  // namespace shardmesh::pickle
