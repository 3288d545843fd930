// SPDX-License-Identifier: Apache-2.0
// The names are those of PyTorch 2.13 and torchao 0.18.
module;
#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
module shardmesh.torch_file;

import :wrapper_table;

namespace shardmesh::torch_file {
namespace {

constexpr compressed_layout compressed_layouts[] = {{"torch.sparse_csr", {"crow_indices", "col_indices"}, 0, false},
                                                    {"torch.sparse_bsr", {"crow_indices", "col_indices"}, 0, true},
                                                    {"torch.sparse_csc", {"ccol_indices", "row_indices"}, 1, false},
                                                    {"torch.sparse_bsc", {"ccol_indices", "row_indices"}, 1, true}};

constexpr std::string_view int8_tensors[] = {"qdata",           "scale",         "zero_point",
                                             "act_quant_scale", "act_pre_scale", "act_quant_zero_point"};
constexpr std::string_view float8_tensors[] = {"qdata", "scale", "act_quant_scale"};
constexpr std::string_view int4_tensors[] = {"qdata", "scale", "zero_point", "act_pre_scale"};
constexpr std::string_view preshuffled_tensors[] = {"qdata", "group_scale", "group_zero", "row_scale"};
constexpr std::string_view tile_packed_tensors[] = {"qdata", "scale_and_zero", "act_pre_scale"};
constexpr std::string_view unpacked_tensors[] = {"qdata", "scale", "zero_point"};
constexpr std::string_view nvfp4_tensors[] = {"qdata", "scale", "per_tensor_scale", "act_per_tensor_scale"};
constexpr std::string_view mx_tensors[] = {"qdata", "scale"};
constexpr std::string_view optimizer_tensors[] = {"codes", "scale", "qmap"};
constexpr std::string_view float8_optimizer_tensors[] = {"codes", "scale"};

constexpr wrapper_class wrapper_classes[] = {
    {"torchao.quantization", "Int8Tensor", int8_tensors, 2},
    {"torchao.quantization", "Float8Tensor", float8_tensors, 2},
    {"torchao.quantization", "Int4Tensor", int4_tensors, 2},
    {"torchao.quantization", "Int4PlainInt32Tensor", int4_tensors, 3},
    {"torchao.quantization", "Int4PreshuffledTensor", preshuffled_tensors, 2},
    {"torchao.quantization", "Int4TilePackedTo4dTensor", tile_packed_tensors, 2},
    {"torchao.quantization", "IntxUnpackedToInt8Tensor", unpacked_tensors, 3},
    {"torchao.prototype.mx_formats.nvfp4_tensor", "NVFP4Tensor", nvfp4_tensors, 2},
    {"torchao.prototype.mx_formats.mx_tensor", "MXTensor", mx_tensors, 2},
    {"torchao.optim.subclass_8bit", "OptimState8bit", optimizer_tensors, 3},
    {"torchao.optim.subclass_4bit", "OptimState4bit", optimizer_tensors, 3},
    {"torchao.optim.subclass_fp8", "OptimStateFp8", float8_optimizer_tensors, 2}};

constexpr setting_class setting_classes[] = {
    {"torchao.quantization.quantize_.common.kernel_preference", "KernelPreference", true},
    {"torchao.quantization.quant_primitives", "MappingType", true},
    {"torchao.prototype.mx_formats.config", "ScaleCalculationMode", true},
    {"torchao.quantization.granularity", "PerTensor"},
    {"torchao.quantization.granularity", "PerAxis"},
    {"torchao.quantization.granularity", "PerGroup"},
    {"torchao.quantization.granularity", "PerRow"},
    {"torchao.quantization.granularity", "PerToken"},
    {"torchao.quantization.granularity", "PerBlock"},
    {"torchao.float8.inference", "Float8MMConfig"},
    {"torchao.quantization.quantize_.workflows.int8.int8_tensor", "QuantizeTensorToInt8Kwargs"},
    {"torchao.quantization.quantize_.workflows.float8.float8_tensor", "QuantizeTensorToFloat8Kwargs"},
    {"torchao.prototype.mx_formats.mx_tensor", "QuantizeTensorToMXKwargs"},
    {"torchao.prototype.mx_formats.nvfp4_tensor", "QuantizeTensorToNVFP4Kwargs"}};

constexpr quantized_dtype quantized_dtypes[] = {{"qint8", dtype::int8, "QInt8Storage"},
                                                {"quint8", dtype::uint8, "QUInt8Storage"},
                                                {"qint32", dtype::int32, "QInt32Storage"}};

template <class Entry>
const Entry* find_dotted(std::span<const Entry> table, std::string_view type) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Entry& one) {
    return type.size() == one.module_name.size() + 1 + one.name.size() && type.starts_with(one.module_name) &&
           type[one.module_name.size()] == '.' && type.ends_with(one.name);
  });
  return found == table.end() ? nullptr : &*found;
}

}  // namespace

const compressed_layout* find_compressed_layout(std::string_view name) {
  const auto* const found = std::find_if(std::begin(compressed_layouts), std::end(compressed_layouts),
                                         [&](const compressed_layout& one) { return one.name == name; });
  return found == std::end(compressed_layouts) ? nullptr : found;
}

const wrapper_class* find_wrapper_class(std::string_view type) {
  return find_dotted<wrapper_class>(wrapper_classes, type);
}

const setting_class* find_setting_class(std::string_view type) {
  return find_dotted<setting_class>(setting_classes, type);
}

const quantized_dtype* find_quantized_dtype(std::string_view name) {
  for (const quantized_dtype& one : quantized_dtypes)
    if (one.name == name) return &one;
  return nullptr;
}

const quantized_dtype* find_quantized_storage(std::string_view storage_class) {
  for (const quantized_dtype& one : quantized_dtypes)
    if (one.storage_class == storage_class) return &one;
  return nullptr;
}

bool is_dtype_name(std::string_view name) {
  if (name == "undefined") return false;
  if (parse_dtype(name) || find_quantized_dtype(name) != nullptr) return true;
  std::string_view bits = name;  // int1 to int7, uint1 to uint7
  if (bits.starts_with('u')) bits.remove_prefix(1);
  return bits.size() == 4 && bits.starts_with("int") && bits[3] >= '1' && bits[3] <= '7';
}

}  // namespace shardmesh::torch_file
