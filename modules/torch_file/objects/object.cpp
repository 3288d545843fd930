// SPDX-License-Identifier: Apache-2.0
// Recognises Python objects by the records that rebuild them.
module;
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.torch_file;

namespace shardmesh::torch_file {
namespace {

bool is_numpy(const pickle::value& record, std::string_view function) {
  return record.is_record_of("numpy._core.multiarray", function) ||
         record.is_record_of("numpy.core.multiarray", function);
}

/// Returns the scalar type of a numpy dtype record, dtype("f8", False, True).
std::string numpy_scalar(const pickle::value& dtype_record) {
  static constexpr std::pair<std::string_view, std::string_view> names[] = {
      {"b1", "bool"},         {"i1", "int8"},       {"i2", "int16"},       {"i4", "int32"},     {"i8", "int64"},
      {"u1", "uint8"},        {"u2", "uint16"},     {"u4", "uint32"},      {"u8", "uint64"},    {"f2", "float16"},
      {"f4", "float32"},      {"f8", "float64"},    {"f16", "longdouble"}, {"c8", "complex64"}, {"c16", "complex128"},
      {"c32", "clongdouble"}, {"M8", "datetime64"}, {"m8", "timedelta64"}, {"O8", "object_"}};
  std::string_view code = argument_of(dtype_record, 0).text().value_or("");
  if (code.starts_with('<') || code.starts_with('>') || code.starts_with('|')) code.remove_prefix(1);
  code = code.substr(0, code.find('['));  // strips a unit of time
  for (const auto& [known, scalar] : names)
    if (known == code) return "numpy." + std::string(scalar);
  if (code.starts_with('U')) return "numpy.str_";
  if (code.starts_with('S')) return "numpy.bytes_";
  return "numpy.generic";
}

object_class classify_record(const torch_file::item& item, const pickle::value& record) {
  if (const auto tensor = item.tensor_of(record)) return {object_kind::tensor, item.tensors()[*tensor].python_type};
  const pickle::value callable = record.callable();
  if (item.is_opaque_tensor(record)) {
    if (callable.global_name().starts_with("_rebuild_from_type"))
      return {object_kind::opaque_tensor, type_name(argument_of(record, 1))};
    const bool parameter = callable.global_name().starts_with("_rebuild_parameter");
    return {object_kind::opaque_tensor, parameter ? "torch.nn.parameter.Parameter" : "torch.Tensor"};
  }
  if (bytes_of(record)) {
    if (is_builtin(record, "bytearray")) return {object_kind::bytearray, "builtins.bytearray"};
    return {object_kind::bytes, "builtins.bytes"};
  }
  const bool one_sequence = record.args().size() == 1 && argument_of(record, 0).kind() == pickle::kind::list;
  if (one_sequence && is_builtin(record, "set")) return {object_kind::set, "builtins.set"};
  if (one_sequence && is_builtin(record, "frozenset")) return {object_kind::frozenset, "builtins.frozenset"};
  if (is_builtin(record, "complex") && argument_of(record, 0).as_float() && argument_of(record, 1).as_float())
    return {object_kind::complex, "builtins.complex"};
  if (is_ordered_dict(record)) return {object_kind::odict, "collections.OrderedDict"};
  if (record.is_record_of("torch", "Size") && argument_of(record, 0).kind() == pickle::kind::tuple)
    return {object_kind::size, "torch.Size"};
  if (record.is_record_of("torch", "device") && argument_of(record, 0).text())
    return {object_kind::device, "torch.device"};
  if (is_numpy(record, "scalar")) return {object_kind::opaque, numpy_scalar(argument_of(record, 0))};
  if (record.is_record_of("torch.serialization", "_get_layout")) return {object_kind::opaque, "torch.layout"};
  if (is_builtin(record, "getattr"))
    return {object_kind::opaque, type_name(argument_of(record, 0))};  // an enum, as Python 3.11 pickles it
  if (callable.global_name() == "_frombuffer" && callable.global_module().starts_with("numpy."))
    return {object_kind::opaque, "numpy.ndarray"};
  if (is_numpy(record, "_reconstruct")) return {object_kind::opaque, type_name(argument_of(record, 0))};
  if (callable.global_module() == "copyreg" || callable.global_module() == "copy_reg")
    return {object_kind::opaque,
            type_name(argument_of(record, 0))};  // _reconstructor(cls, base, state), __newobj__(cls)
  return {object_kind::opaque, type_name(callable)};
}

}  // namespace

std::string_view name(object_kind kind) {
  static constexpr std::array<std::string_view, 20> names{
      "none", "bool",  "int", "float",     "complex", "str",   "bytes",  "bytearray", "list",   "tuple",
      "dict", "odict", "set", "frozenset", "size",    "dtype", "device", "global",    "tensor", "opaque-tensor"};
  return kind == object_kind::opaque ? "opaque" : names[static_cast<std::size_t>(kind)];
}

object_class classify(const torch_file::item& item, const pickle::value& value) {
  switch (value.kind()) {
    case pickle::kind::none:
      return {object_kind::none, "builtins.NoneType"};
    case pickle::kind::boolean:
      return {object_kind::boolean, "builtins.bool"};
    case pickle::kind::integer:
      return {object_kind::integer, "builtins.int"};
    case pickle::kind::floating:
      return {object_kind::floating, "builtins.float"};
    case pickle::kind::text:
      return {object_kind::str, "builtins.str"};
    case pickle::kind::bytes:
      return {object_kind::bytes, "builtins.bytes"};
    case pickle::kind::bytearray:
      return {object_kind::bytearray, "builtins.bytearray"};
    case pickle::kind::list:
      return {object_kind::list, "builtins.list"};
    case pickle::kind::tuple:
      return {object_kind::tuple, "builtins.tuple"};
    case pickle::kind::dict:
      return {object_kind::dict, "builtins.dict"};
    case pickle::kind::set:
      return {object_kind::set, "builtins.set"};
    case pickle::kind::frozenset:
      return {object_kind::frozenset, "builtins.frozenset"};
    case pickle::kind::global:
      if (value.global_module() == "torch" && parse_dtype(value.global_name()))
        return {object_kind::dtype, "torch.dtype"};
      if (value.global_module() == "torch" &&
          (value.global_name().ends_with("_format") || value.global_name().starts_with("channels_last")))
        return {object_kind::opaque, "torch.memory_format"};
      // Protocols before 4 write an attribute of a class as getattr(class, name).
      if (const std::size_t dot = value.global_name().rfind('.'); dot != std::string_view::npos) {
        std::string owner = type_name(value);
        owner.resize(owner.size() - (value.global_name().size() - dot));
        return {object_kind::opaque, std::move(owner)};
      }
      return {object_kind::global, "builtins.type"};
    case pickle::kind::record:
      return classify_record(item, value);
    case pickle::kind::persistent: {
      const pickle::items id = value.persistent_id().items();
      return {object_kind::opaque, id.size() > 1 ? type_name(id[1]) : "unknown"};
    }
    case pickle::kind::extension:
    case pickle::kind::absent:
      break;
  }
  return {object_kind::opaque, "unknown"};
}

std::string tensor_kind(const pickle::value& value) {
  const std::string_view function = value.callable().global_name();
  const auto starts = [&](std::string_view text) { return function.starts_with(text); };
  if (starts("_rebuild_parameter")) {
    const pickle::value data = argument_of(value, 0);  // one level: PyTorch has no parameters of parameters
    return data.callable().global_name().starts_with("_rebuild_parameter") ? "tensor of an unknown representation"
                                                                           : tensor_kind(data);
  }
  if (starts("_rebuild_sparse")) {
    std::string_view layout = argument_of(argument_of(value, 0), 0).text().value_or("");
    if (layout.starts_with("torch.sparse_")) layout.remove_prefix(std::string_view("torch.sparse_").size());
    std::string name = "sparse ";
    for (const char c : layout.substr(0, 8)) name += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    return name + (layout.empty() ? "tensor" : " tensor");
  }
  if (starts("_rebuild_qtensor")) return "quantized tensor";
  if (starts("_rebuild_nested_tensor")) return "nested tensor";
  if (starts("_rebuild_meta_tensor")) return "meta tensor (it has no values)";
  if (starts("_rebuild_device_tensor")) return "tensor of a device that saves copies";
  if (starts("_rebuild_from_type") || starts("_rebuild_wrapper_subclass")) {
    const std::string type = type_name(argument_of(value, starts("_rebuild_from_type") ? 1 : 0));
    return type.ends_with(".NestedTensor") ? "nested tensor" : "tensor subclass " + type;
  }
  if (starts("_rebuild_tensor_v3")) return "tensor of dtype " + type_name(argument_of(value, 6));
  return "tensor of an unknown representation";
}

}  // namespace shardmesh::torch_file
