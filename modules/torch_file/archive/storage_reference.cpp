// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
module shardmesh.torch_file;

import :storage_reference;

namespace shardmesh::torch_file {
namespace {

struct class_dtype {
  std::string_view storage_class;
  dtype type;
};
constexpr class_dtype storage_classes[] = {{"FloatStorage", dtype::float32},
                                           {"DoubleStorage", dtype::float64},
                                           {"HalfStorage", dtype::float16},
                                           {"BFloat16Storage", dtype::bfloat16},
                                           {"LongStorage", dtype::int64},
                                           {"IntStorage", dtype::int32},
                                           {"ShortStorage", dtype::int16},
                                           {"CharStorage", dtype::int8},
                                           {"ByteStorage", dtype::uint8},
                                           {"BoolStorage", dtype::boolean},
                                           {"ComplexFloatStorage", dtype::complex64},
                                           {"ComplexDoubleStorage", dtype::complex128}};

/// Names that only TorchScript writes. Python saves these dtypes as untyped storages.
constexpr class_dtype script_classes[] = {{"ComplexHalfStorage", dtype::complex32},
                                          {"UInt16Storage", dtype::uint16},
                                          {"UInt32Storage", dtype::uint32},
                                          {"UInt64Storage", dtype::uint64},
                                          {"Float8_e4m3fnStorage", dtype::float8_e4m3fn},
                                          {"Float8_e5m2Storage", dtype::float8_e5m2},
                                          {"Float8_e4m3fnuzStorage", dtype::float8_e4m3fnuz},
                                          {"Float8_e5m2fnuzStorage", dtype::float8_e5m2fnuz},
                                          {"Float8_e8m0fnuStorage", dtype::float8_e8m0fnu},
                                          {"Float4_e2m1fn_x2Storage", dtype::float4_e2m1fn_x2}};

/// Storages of quantized tensors, which are not exposed.
constexpr class_dtype quantized_classes[] = {{"QInt8Storage", dtype::int8},
                                             {"QUInt8Storage", dtype::uint8},
                                             {"QInt32Storage", dtype::int32},
                                             {"QUInt4x2Storage", dtype::uint8},
                                             {"QUInt2x4Storage", dtype::uint8}};

}  // namespace

std::optional<std::string_view> storage_class(dtype type) {
  for (const class_dtype& entry : storage_classes)
    if (entry.type == type) return entry.storage_class;
  return std::nullopt;
}

result<storage> declared_storage(const pickle::value& reference, bool is_legacy) {
  const pickle::items id = reference.persistent_id().items();
  if (id.size() < 5 || id.size() > 6 || id[0].text() != "storage" || !id[2].text() ||
      id[1].kind() != pickle::kind::global)
    return fail(errc::bad_format, "a tensor's storage is not a reference to one");
  if (id.size() == 6 && !id[5].is_none())
    return fail(errc::unsupported, "storages that view others, of PyTorch's oldest files, are not supported");
  const std::string_view module_name = id[1].global_module(), storage_class = id[1].global_name();
  torch_file::storage storage;
  storage.key = *id[2].text();
  const bool is_torch = module_name == "torch" || module_name.starts_with("torch.");
  const bool untyped = storage_class == "UntypedStorage" || storage_class == "_UntypedStorage";
  for (const class_dtype& entry : storage_classes)
    if (entry.storage_class == storage_class) storage.type = entry.type;
  for (const class_dtype& entry : script_classes)
    if (entry.storage_class == storage_class) storage.type = entry.type;
  for (const class_dtype& entry : quantized_classes)
    if (is_legacy && entry.storage_class == storage_class) storage.type = entry.type;
  if (!is_torch || (!untyped && storage.type == dtype::undefined))
    return fail(errc::unsupported,
                fmt::format("storages of class {}.{} are not supported", escaped(module_name), escaped(storage_class)));
  const auto count = id[4].as_int();
  const auto bytes = count && *count >= 0 ? size_bytes(untyped ? dtype::uint8 : storage.type, *count) : std::nullopt;
  if (!bytes) return fail(errc::bad_format, fmt::format("storage \"{}\" has an impossible size", escaped(storage.key)));
  storage.size_bytes = *bytes;
  return storage;
}

}  // namespace shardmesh::torch_file
