// SPDX-License-Identifier: Apache-2.0
// The walk of item_reader over the pickle: every rebuild record becomes a tensor, checked against its storage.
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :item_reader;
import :pickled_storage;
import :storage_reference;
import :wrapper_table;

namespace shardmesh::torch_file {
namespace {

/// Decodes the non-negative integers of a tuple, list, or torch.Size.
result<extents> integers_of(pickle::value value, std::string_view what) {
  if (value.is_record_of("torch", "Size") && value.args().size() == 1) value = value.args().items()[0];
  if (value.kind() != pickle::kind::tuple && value.kind() != pickle::kind::list)
    return fail(errc::bad_format, fmt::format("a tensor's {} are a {}, not a tuple", what, name(value.kind())));
  if (value.size() > max_rank)
    return fail(errc::rank_too_large, fmt::format("a tensor has {} dimensions", value.size()))
        .with_values(fmt::format("at most {}", max_rank), fmt::format("{}", value.size()));
  extents numbers;
  for (const pickle::value item : value.items()) {
    const auto number = item.as_int();
    if (!number || *number < 0)
      return fail(errc::bad_format, fmt::format("a tensor's {} have an invalid entry, {}", what,
                                                item.decimal(40).value_or(std::string(name(item.kind())))));
    numbers.push_back(*number);
  }
  return numbers;
}

/// Number of storage elements that a view reaches: one past the last it touches; 0 when it is empty. Empty on overflow.
std::optional<std::int64_t> reach(const torch_file::tensor& tensor) {
  if (checked_volume(tensor.sizes) == 0) return 0;  // whatever the other sizes are
  std::int64_t last = tensor.storage_offset;
  for (std::size_t d = 0; d < tensor.sizes.rank(); ++d) {
    const auto step = checked_multiply(tensor.sizes[d] - 1, tensor.strides[d]);
    const auto sum = step ? checked_add(last, *step) : std::nullopt;
    if (!sum) return std::nullopt;
    last = *sum;
  }
  return checked_add(last, 1);
}

}  // namespace

bool is_rebuild(const pickle::value& callable, std::string_view function) {
  return callable.is_global("torch._utils", function);
}

bool is_any_rebuild(const pickle::value& callable) {
  return callable.kind() == pickle::kind::global && callable.global_name().starts_with("_rebuild_") &&
         (callable.global_module() == "torch._utils" || callable.global_module() == "torch._tensor");
}

// Protocol 2 writes bytes as text: _codecs.encode(text, "latin1"). Python refuses text beyond Latin-1. This refuses it
// once, because every record that refers to the text would otherwise read it to its end again.
result<void> item_reader::check_bytes_text(const pickle::value& record) {
  if (!record.is_record_of("_codecs", "encode") || record.args().size() < 2) return {};
  const auto text = record.args().items()[0].text(), encoding = record.args().items()[1].text();
  if (!text || text->size() < 256 || !encoding || !encoding->starts_with("latin")) return {};
  if (!checked_texts_.insert(text->data()).second || bytes_of(record)) return {};  // many records may refer to one text
  return fail(errc::bad_pickle, fmt::format("bytes are written as text of {}, which is not all Latin-1",
                                            detail::counted(text->size(), "byte")))
      .with_file(source_.name());
}

// Visits every value once. A rebuild record becomes a tensor and is not entered; other records are.
result<void> item_reader::collect(torch_file::item& item) {
  std::unordered_set<std::uint64_t> seen;
  std::vector<pickle::value> pending{item.root()};
  const auto add = [&](const pickle::items& items) {
    for (const pickle::value part : items) pending.push_back(part);
  };
  while (!pending.empty()) {
    const pickle::value value = pending.back();
    pending.pop_back();
    switch (value.kind()) {
      case pickle::kind::list:
      case pickle::kind::tuple:
      case pickle::kind::set:
      case pickle::kind::frozenset:
        if (seen.insert(value.identity()).second) add(value.items());
        break;
      case pickle::kind::dict:
        if (!seen.insert(value.identity()).second) break;
        for (const pickle::pair pair : value.pairs()) pending.push_back(pair.key), pending.push_back(pair.value);
        break;
      case pickle::kind::persistent:
        if (is_legacy_ && value.persistent_id().size() >= 5) SHARDMESH_TRY(storage_of(item, value));
        break;
      case pickle::kind::record: {
        if (!seen.insert(value.identity()).second) break;
        SHARDMESH_TRY(check_bytes_text(value));
        if (options_.is_file && !pickled_.empty()) {
          SHARDMESH_TRY(const bool is_array, collect_array(item, value));
          if (is_array) break;
        }
        if (is_any_rebuild(value.callable())) {
          SHARDMESH_TRY(collect_tensor(item, value));
          if (item.tensor_of(value)) break;
        }
        add(value.args().items());
        for (const pickle::value part : {value.state(), value.appended(), value.assigned(), value.keyword_args()})
          if (part) pending.push_back(part);
        break;
      }
      default:
        break;
    }
  }
  return {};
}

result<void> item_reader::collect_tensor(torch_file::item& item, const pickle::value& record) {
  SHARDMESH_TRY(budget_.build(sizeof(tensor)));
  torch_file::tensor tensor;
  tensor.python_type = "torch.Tensor";
  pickle::value callable = record.callable(), args = record.args();
  std::optional<bool> requires_grad;
  if ((is_rebuild(callable, "_rebuild_parameter") || is_rebuild(callable, "_rebuild_parameter_with_state")) &&
      args.size() >= 2) {
    requires_grad = args.items()[1].as_bool();
    const pickle::value data = args.items()[0];
    callable = data.callable(), args = data.args();
    tensor.python_type = "torch.nn.parameter.Parameter";
  } else if (callable.is_global("torch._tensor", "_rebuild_from_type_v2") && args.size() == 4 &&
             (args.items()[1].is_global("torch", "Tensor") || args.items()[1].is_global("torch._tensor", "Tensor"))) {
    // A plain tensor with attributes of its own.
    callable = args.items()[0];
    args = args.items()[2];
  }
  if (is_rebuild(callable, "_rebuild_qtensor")) {
    collect_quantized(item, args, std::move(tensor));
    return {};
  }
  auto is_exposed = read_tensor(item, callable, args, tensor);
  if (!is_exposed) return std::move(is_exposed).error().with_file(source_.name());
  if (!*is_exposed) return {};
  if (requires_grad) tensor.requires_grad = *requires_grad;
  item.tensor_of_.emplace(record.identity(), item.tensors_.size());
  item.tensors_.push_back(std::move(tensor));
  return {};
}

// Collects the integers of a quantized tensor from its arguments: (storage, offset, sizes, strides, ...). Skips
// unreadable ones, which only the conversion into components needs.
void item_reader::collect_quantized(torch_file::item& item, const pickle::value& args, tensor integers) {
  const pickle::items given = args.items();
  if (given.size() < 7 || item.tensor_of_.contains(args.identity())) return;
  const pickle::items id = given[0].persistent_id().items();
  const quantized_dtype* const known = id.size() > 1 ? find_quantized_storage(id[1].global_name()) : nullptr;
  const auto offset = given[1].as_int();
  auto sizes = integers_of(given[2], "sizes"), strides = integers_of(given[3], "strides");
  if (known == nullptr || !offset || *offset < 0 || !sizes || !strides || sizes->rank() != strides->rank()) return;
  auto storage = storage_of(item, given[0], true);
  if (!storage) return;
  integers.type = known->stored;
  integers.sizes = *sizes;
  integers.strides = *strides;
  integers.storage = *storage;
  integers.storage_offset = *offset;
  const auto count = checked_volume(*sizes), needed = reach(integers);
  const auto bytes = needed ? checked_multiply(*needed, item_bytes(integers.type)) : std::nullopt;
  if (!count || !size_bytes(integers.type, *count) || !bytes || *bytes > item.storages_[*storage].size_bytes) return;
  item.tensor_of_.emplace(args.identity(), item.tensors_.size());
  item.tensors_.push_back(std::move(integers));
}

/// False for a tensor of a kind that we do not expose.
result<bool> item_reader::read_tensor(torch_file::item& item, const pickle::value& callable, const pickle::value& args,
                                      tensor& out) {
  const bool v3 = is_rebuild(callable, "_rebuild_tensor_v3");
  const bool v2 = is_rebuild(callable, "_rebuild_tensor_v2");
  if (!v3 && !v2 && !is_rebuild(callable, "_rebuild_tensor")) return false;
  const pickle::items given = args.items();
  const std::size_t least = v3 ? 7 : v2 ? 6 : 4;
  if (given.size() < least || given.size() > least + (v2 || v3 ? 1 : 0))
    return fail(errc::bad_format, fmt::format("a tensor is rebuilt from {}", detail::counted(given.size(), "argument")))
        .with_values(fmt::format("{}", least), fmt::format("{}", given.size()));
  std::optional<dtype> argument_type;
  if (v3) {
    argument_type = parse_dtype(given[6].global_name());
    if (given[6].global_module() != "torch" || !argument_type) return false;
  }
  SHARDMESH_TRY(out.storage, storage_of(item, given[0]));
  const torch_file::storage& storage = item.storages_[out.storage];
  out.type = v3 ? *argument_type : storage.type == dtype::undefined ? dtype::uint8 : storage.type;
  const auto offset = given[1].as_int();
  if (!offset || *offset < 0) return fail(errc::bad_format, "a tensor's storage offset is negative or not a number");
  out.storage_offset = *offset;
  SHARDMESH_TRY(out.sizes, integers_of(given[2], "sizes"));
  SHARDMESH_TRY(out.strides, integers_of(given[3], "strides"));
  if (out.sizes.rank() != out.strides.rank())
    return fail(errc::bad_format, "a tensor's sizes and strides differ in number");
  if (v2 || v3) out.requires_grad = given[4].as_bool().value_or(false);
  if (given.size() > least) {
    pickle::value bits = given[least];
    // TorchScript writes dicts together with their type.
    if (bits.is_record_of("torch.jit._pickle", "restore_type_tag") && !bits.args().items().empty())
      bits = bits.args().items()[0];
    if (bits.kind() != pickle::kind::dict && !bits.is_none())
      return fail(errc::bad_format, "a tensor's metadata (conj, neg) is not a dict");
    out.conj = bits.find("conj").as_bool().value_or(false);
    out.neg = bits.find("neg").as_bool().value_or(false);
  }
  const auto count = checked_volume(out.sizes);
  if (!count || !size_bytes(out.type, *count))
    return fail(errc::overflow, "the size of a tensor does not fit in 64 bits: " + to_string(out.sizes));
  const auto needed = reach(out);
  const auto needed_bytes = needed ? checked_multiply(*needed, item_bytes(out.type)) : std::nullopt;
  if (!needed_bytes || *needed_bytes > storage.size_bytes)
    return fail(errc::out_of_bounds,
                fmt::format("a tensor of sizes {}, strides {} and offset {} reaches beyond its storage \"{}\"",
                            to_string(out.sizes), to_string(out.strides), out.storage_offset, escaped(storage.key)))
        .with_values(fmt::format("at most {} bytes", storage.size_bytes),
                     needed_bytes ? fmt::format("{}", *needed_bytes) : "more than 2^63");
  return true;
}

// False if the record is not an array of plain numbers; it then stays an object.
result<bool> item_reader::collect_array(torch_file::item& item, const pickle::value& record) {
  const auto array = find_pickled_array(record, pickled_);
  if (!array || (item.byte_order_ != std::endian::little)) return false;
  SHARDMESH_TRY(budget_.build(sizeof(tensor)));
  torch_file::storage storage;
  storage.key = fmt::format("at byte {}", array->begin);
  storage.size_bytes = array->length;
  torch_file::tensor tensor;
  tensor.type = array->type;
  tensor.sizes = array->sizes;
  tensor.strides = array->strides;
  tensor.storage = add_pickled(item, std::move(storage), array->begin);
  tensor.python_type = "numpy.ndarray";
  item.tensor_of_.emplace(record.identity(), item.tensors_.size());
  item.tensors_.push_back(std::move(tensor));
  return true;
}

}  // namespace shardmesh::torch_file
