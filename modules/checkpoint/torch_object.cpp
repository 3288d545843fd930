// SPDX-License-Identifier: Apache-2.0
// Recognition of Python objects by the records that pickles make them with.
module;
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.checkpoint;

namespace shardmesh {
namespace {

/// Protocol 2 spells some modules as Python 2 named them.
std::string_view python3_module(std::string_view module_name) {
  if (module_name == "__builtin__") return "builtins";
  if (module_name == "copy_reg") return "copyreg";
  return module_name;
}

std::string type_name(pickle_value global) {
  // A class whose source text lies beside it, in PyTorch's oldest files: ("module", class, file, text).
  if (const pickle_items id = global.persistent_id().items(); id.size() == 4 && id[0].text() == "module")
    global = id[1];
  if (global.kind() != pickle_kind::global) return "unknown";
  std::string_view attribute = global.global_name();
  const std::string_view module_name = python3_module(global.global_module());
  if (module_name == "builtins" && attribute == "long") attribute = "int";
  if (module_name == "builtins" && attribute == "xrange") attribute = "range";
  return std::string(module_name) + "." + std::string(attribute);
}

bool is_builtin(const pickle_value& record, std::string_view attribute) {
  const pickle_value callable = record.callable();
  return callable.global_name() == attribute && python3_module(callable.global_module()) == "builtins";
}

bool is_numpy(const pickle_value& record, std::string_view function) {
  return record.is_record_of("numpy._core.multiarray", function) ||
         record.is_record_of("numpy.core.multiarray", function);
}

pickle_value argument(const pickle_value& record, std::size_t i) {
  const pickle_items given = record.args().items();
  return i < given.size() ? given[i] : pickle_value();
}

/// The scalar type of a numpy dtype record, dtype("f8", False, True).
std::string numpy_scalar(const pickle_value& dtype_record) {
  static constexpr std::pair<std::string_view, std::string_view> names[] = {
      {"b1", "bool"},         {"i1", "int8"},       {"i2", "int16"},       {"i4", "int32"},     {"i8", "int64"},
      {"u1", "uint8"},        {"u2", "uint16"},     {"u4", "uint32"},      {"u8", "uint64"},    {"f2", "float16"},
      {"f4", "float32"},      {"f8", "float64"},    {"f16", "longdouble"}, {"c8", "complex64"}, {"c16", "complex128"},
      {"c32", "clongdouble"}, {"M8", "datetime64"}, {"m8", "timedelta64"}, {"O8", "object_"}};
  std::string_view code = argument(dtype_record, 0).text().value_or("");
  if (code.starts_with('<') || code.starts_with('>') || code.starts_with('|')) code.remove_prefix(1);
  code = code.substr(0, code.find('['));  // a unit of time
  for (const auto& [known, scalar] : names)
    if (known == code) return "numpy." + std::string(scalar);
  if (code.starts_with('U')) return "numpy.str_";
  if (code.starts_with('S')) return "numpy.bytes_";
  return "numpy.generic";
}

/// A str whose characters are all below 256, as one byte each.
std::optional<std::string> latin1(std::string_view utf8) {
  std::string out;
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    const auto c = static_cast<unsigned char>(utf8[i]);
    if (c < 0x80) {
      out += utf8[i];
    } else if ((c == 0xc2 || c == 0xc3) && i + 1 < utf8.size()) {
      out += static_cast<char>((c & 3) << 6 | (static_cast<unsigned char>(utf8[++i]) & 0x3f));
    } else {
      return std::nullopt;
    }
  }
  return out;
}

std::string plain_bytes(const pickle_value& value) {
  const auto bytes = *value.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool is_ordered_dict(const pickle_value& value) {
  return value.is_record_of("collections", "OrderedDict") && value.args().size() == 0;
}

object_class classify_record(const torch_item& item, const pickle_value& record) {
  if (const auto tensor = item.tensor_of(record)) return {object_kind::tensor, item.tensors()[*tensor].python_type};
  const pickle_value callable = record.callable();
  if (item.is_opaque_tensor(record)) {
    if (callable.global_name().starts_with("_rebuild_from_type"))
      return {object_kind::opaque_tensor, type_name(argument(record, 1))};
    const bool parameter = callable.global_name().starts_with("_rebuild_parameter");
    return {object_kind::opaque_tensor, parameter ? "torch.nn.parameter.Parameter" : "torch.Tensor"};
  }
  if (bytes_of(record)) {
    if (is_builtin(record, "bytearray")) return {object_kind::bytearray, "builtins.bytearray"};
    return {object_kind::bytes, "builtins.bytes"};
  }
  const bool one_sequence = record.args().size() == 1 && argument(record, 0).kind() == pickle_kind::list;
  if (one_sequence && is_builtin(record, "set")) return {object_kind::set, "builtins.set"};
  if (one_sequence && is_builtin(record, "frozenset")) return {object_kind::frozenset, "builtins.frozenset"};
  if (is_builtin(record, "complex") && argument(record, 0).as_float() && argument(record, 1).as_float())
    return {object_kind::complex, "builtins.complex"};
  if (is_ordered_dict(record)) return {object_kind::odict, "collections.OrderedDict"};
  if (record.is_record_of("torch", "Size") && argument(record, 0).kind() == pickle_kind::tuple)
    return {object_kind::size, "torch.Size"};
  if (record.is_record_of("torch", "device") && argument(record, 0).text())
    return {object_kind::device, "torch.device"};
  if (is_numpy(record, "scalar")) return {object_kind::opaque, numpy_scalar(argument(record, 0))};
  if (record.is_record_of("torch.serialization", "_get_layout")) return {object_kind::opaque, "torch.layout"};
  if (is_builtin(record, "getattr"))
    return {object_kind::opaque, type_name(argument(record, 0))};  // enums of Python 3.11
  if (callable.global_name() == "_frombuffer" && callable.global_module().starts_with("numpy."))
    return {object_kind::opaque, "numpy.ndarray"};
  if (is_numpy(record, "_reconstruct")) return {object_kind::opaque, type_name(argument(record, 0))};
  if (callable.global_module() == "copyreg" || callable.global_module() == "copy_reg")
    return {object_kind::opaque, type_name(argument(record, 0))};  // _reconstructor(cls, base, state), __newobj__(cls)
  return {object_kind::opaque, type_name(callable)};
}

}  // namespace

std::string_view name(object_kind kind) {
  static constexpr std::array<std::string_view, 20> names{
      "none", "bool",  "int", "float",     "complex", "str",   "bytes",  "bytearray", "list",   "tuple",
      "dict", "odict", "set", "frozenset", "size",    "dtype", "device", "global",    "tensor", "opaque-tensor"};
  return kind == object_kind::opaque ? "opaque" : names[static_cast<std::size_t>(kind)];
}

object_class classify(const torch_item& item, const pickle_value& value) {
  switch (value.kind()) {
    case pickle_kind::none:
      return {object_kind::none, "builtins.NoneType"};
    case pickle_kind::boolean:
      return {object_kind::boolean, "builtins.bool"};
    case pickle_kind::integer:
      return {object_kind::integer, "builtins.int"};
    case pickle_kind::floating:
      return {object_kind::floating, "builtins.float"};
    case pickle_kind::text:
      return {object_kind::str, "builtins.str"};
    case pickle_kind::bytes:
      return {object_kind::bytes, "builtins.bytes"};
    case pickle_kind::bytearray:
      return {object_kind::bytearray, "builtins.bytearray"};
    case pickle_kind::list:
      return {object_kind::list, "builtins.list"};
    case pickle_kind::tuple:
      return {object_kind::tuple, "builtins.tuple"};
    case pickle_kind::dict:
      return {object_kind::dict, "builtins.dict"};
    case pickle_kind::set:
      return {object_kind::set, "builtins.set"};
    case pickle_kind::frozenset:
      return {object_kind::frozenset, "builtins.frozenset"};
    case pickle_kind::global:
      if (value.global_module() == "torch" && parse_dtype(value.global_name()))
        return {object_kind::dtype, "torch.dtype"};
      if (value.global_module() == "torch" &&
          (value.global_name().ends_with("_format") || value.global_name().starts_with("channels_last")))
        return {object_kind::opaque, "torch.memory_format"};
      return {object_kind::global, "builtins.type"};
    case pickle_kind::record:
      return classify_record(item, value);
    case pickle_kind::persistent: {
      const pickle_items id = value.persistent_id().items();
      return {object_kind::opaque, id.size() > 1 ? type_name(id[1]) : "unknown"};
    }
    case pickle_kind::extension:
    case pickle_kind::absent:
      break;
  }
  return {object_kind::opaque, "unknown"};
}

bool is_mapping(const pickle_value& value) {
  if (value.kind() == pickle_kind::dict || is_ordered_dict(value)) return true;
  return value.is_record_of("collections", "defaultdict") || value.is_record_of("collections", "Counter");
}

pickle_value mapping_entries(const pickle_value& value) {
  if (value.kind() == pickle_kind::dict) return value;
  if (value.is_record_of("collections", "Counter") && argument(value, 0).kind() == pickle_kind::dict)
    return argument(value, 0);
  return is_mapping(value) ? value.assigned() : pickle_value();
}

pickle_items sequence_items(const pickle_value& value) {
  if (value.kind() != pickle_kind::record) return value.items();
  const bool known = is_builtin(value, "set") || is_builtin(value, "frozenset") || value.is_record_of("torch", "Size");
  return known ? argument(value, 0).items() : pickle_items();
}

std::optional<std::string> bytes_of(const pickle_value& value) {
  if (value.bytes()) return plain_bytes(value);
  if (value.kind() != pickle_kind::record) return std::nullopt;
  const pickle_value content = argument(value, 0);
  const bool encoded = value.is_record_of("_codecs", "encode");
  if (!encoded && !is_builtin(value, "bytes") && !is_builtin(value, "bytearray")) return std::nullopt;
  if (!content && !encoded) return std::string();
  if (content.bytes() && !encoded) return plain_bytes(content);
  const std::string_view encoding = argument(value, 1).text().value_or("");
  if (!content.text() || (encoding != "latin1" && encoding != "latin-1")) {
    // bytearray(_codecs.encode(...)): one level only, so that hostile nesting costs nothing.
    if (!encoded && content.is_record_of("_codecs", "encode")) return bytes_of(content);
    return std::nullopt;
  }
  return latin1(*content.text());
}

std::optional<std::array<std::int64_t, 3>> range_of(const pickle_value& value) {
  const pickle_items args = value.args().items();
  if (!(is_builtin(value, "range") || is_builtin(value, "xrange")) || args.size() != 3) return std::nullopt;
  const auto start = args[0].as_int(), stop = args[1].as_int(), step = args[2].as_int();
  if (!start || !stop || !step) return std::nullopt;
  return std::array{*start, *stop, *step};
}

std::optional<std::string> global_text(const pickle_value& value) {
  if (value.kind() == pickle_kind::global) return type_name(value);
  const auto attribute = argument(value, 1).text();
  if (!is_builtin(value, "getattr") || argument(value, 0).kind() != pickle_kind::global || !attribute)
    return std::nullopt;
  return type_name(argument(value, 0)) + "." + std::string(*attribute);
}

std::string tensor_kind(const pickle_value& value) {
  const std::string_view function = value.callable().global_name();
  const auto starts = [&](std::string_view text) { return function.starts_with(text); };
  if (starts("_rebuild_parameter")) {
    const pickle_value data = argument(value, 0);  // one level: a parameter of a parameter is no tensor of PyTorch's
    return data.callable().global_name().starts_with("_rebuild_parameter") ? "tensor of an unknown representation"
                                                                           : tensor_kind(data);
  }
  if (starts("_rebuild_sparse")) {
    std::string_view layout = argument(argument(value, 0), 0).text().value_or("");
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
    const std::string type = type_name(argument(value, starts("_rebuild_from_type") ? 1 : 0));
    return type.ends_with(".NestedTensor") ? "nested tensor" : "tensor subclass " + type;
  }
  if (starts("_rebuild_tensor_v3")) return "tensor of dtype " + type_name(argument(value, 6));
  return "tensor of an unknown representation";
}

}  // namespace shardmesh
