// SPDX-License-Identifier: Apache-2.0
// The descriptions of single entries: tensors, their chunks, and objects.
module;
#include <fmt/format.h>
#include <plural.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :metadata_parser;
import :pickled_fields;

namespace shardmesh::dcp {
namespace {

// The cost of a chunk that is built, in bytes. It is more than the chunk's own memory: the chunk is opened and checked,
// and the caller may report errors on it.
constexpr std::size_t chunk_bytes = 2048;

}  // namespace

void metadata_parser::read_entry(pickle::value key, pickle::value entry) {
  const auto fqn = key.text();
  if (!fqn) return static_cast<void>(problem(errc::bad_format, "a key of state_dict_metadata is not text", {}));
  if (names_.contains(*fqn)) return static_cast<void>(problem(errc::duplicate_key, "is described twice", *fqn));
  if (is_metadata_class(entry, "TensorStorageMetadata")) return read_tensor(*fqn, entry);
  if (!is_metadata_class(entry, "BytesStorageMetadata"))
    return problem(fail(errc::bad_format, "its description is of an unknown kind")
                       .with_values("TensorStorageMetadata or BytesStorageMetadata", class_text(entry)),
                   *fqn);
  names_.emplace(*fqn, static_cast<std::int64_t>(-1 - static_cast<std::int64_t>(made_.contents.objects.size())));
  made_.contents.objects.push_back({std::string(*fqn), paths_.of(*fqn), {}});
}

void metadata_parser::read_tensor(std::string_view key, pickle::value entry) {
  tensor_entry tensor;
  tensor.key = key;
  const pickle::value properties = field(entry, "properties");
  if (!spend(key.size() + 40 * properties.state().size(), key)) return;
  const pickle::value type = property(properties, 0, "dtype");
  if (type.global_module() == "torch") tensor.type = parse_dtype(type.global_name()).value_or(dtype::undefined);
  if (tensor.type == dtype::undefined) {
    if (type.kind() != pickle::kind::global) return static_cast<void>(problem(errc::bad_format, "has no dtype", key));
    tensor.opaque_type = fmt::format("{}.{}", type.global_module(), type.global_name());
    note_foreign_dtype(type, key, tensor);
  }
  if (const auto layout = property(properties, 1, "layout").args().items(); !layout.empty())
    tensor.properties.layout = layout[0].text().value_or("torch.strided");
  tensor.properties.requires_grad = property(properties, 2, "requires_grad").as_bool().value_or(false);
  tensor.properties.memory_format = read_memory_format(property(properties, 3, "memory_format"));
  tensor.properties.pin_memory = property(properties, 4, "pin_memory").as_bool().value_or(false);
  auto shape = read_sizes(field(entry, "size"), "size");
  if (!shape) return problem(std::move(shape).error(), key);
  const auto volume = checked_volume(*shape);
  if (!volume || !size_bytes(tensor.type, *volume))
    return problem(fail(errc::overflow, "its size does not fit in 64 bits").with_values("", to_string(*shape)), key);
  tensor.shape = *shape;
  tensor.properties.strides = read_strides(property(properties, 5, "strides"), shape->rank());
  tensor.where = paths_.of(key);
  names_.emplace(key, static_cast<std::int64_t>(made_.contents.tensors.size()));
  made_.contents.tensors.push_back(std::move(tensor));
  made_.contents.tensors.back().first_chunk = static_cast<std::int32_t>(made_.contents.chunk_places.size());
  for (const pickle::value chunk : field(entry, "chunks").items()) {
    if (!spend(chunk_bytes, key)) return;
    read_chunk(key, chunk);
  }
}

// Keeps the name of a dtype that shardmesh lacks, so that a copy has the same name. torch.undefined, or a name that
// does not belong to torch, stops PyTorch from reading the whole metadata.
void metadata_parser::note_foreign_dtype(pickle::value type, std::string_view key, tensor_entry& tensor) {
  const std::string_view spelled = type.global_name();
  const bool is_name = !spelled.empty() && std::all_of(spelled.begin(), spelled.end(), [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
  if (type.global_module() != "torch" || !is_name || spelled == "undefined")
    return problem(fail(errc::bad_format, "has a dtype that PyTorch cannot load")
                       .with_values("a dtype of torch", tensor.opaque_type),
                   key);
  tensor.properties.foreign_dtype = spelled;
  if (!is_other_torch_dtype(spelled))
    made_.warnings.push_back(fail(errc::unsupported, "has a dtype that PyTorch 2.13 does not know")
                                 .with_file(account_.file())
                                 .with_key(key)
                                 .with_values("", tensor.opaque_type));
}

void metadata_parser::read_chunk(std::string_view key, pickle::value chunk) {
  const extents& shape = made_.contents.tensors.back().shape;
  auto offsets = read_sizes(field(chunk, "offsets"), "chunk's offsets");
  if (!offsets) return problem(std::move(offsets).error(), key);
  auto sizes = read_sizes(field(chunk, "sizes"), "chunk's sizes");
  if (!sizes) return problem(std::move(sizes).error(), key);
  const box where{*offsets, *sizes};
  if (offsets->rank() != shape.rank() || sizes->rank() != shape.rank())
    return problem(fail(errc::shape_mismatch, "a chunk has a different number of dimensions than the tensor")
                       .with_values(fmt::format("{}", shape.rank()),
                                    fmt::format("{}, {}", detail::counted(offsets->rank(), "offset"),
                                                detail::counted(sizes->rank(), "size"))),
                   key);
  if (!is_well_formed(where) || !lies_within(where, box::whole(shape)))
    return problem(fail(errc::out_of_bounds, "a chunk lies outside of the tensor")
                       .with_box(is_well_formed(where) ? where : box{*offsets, extents::filled(shape.rank(), 0)})
                       .with_values(to_string(box::whole(shape)),
                                    fmt::format("offsets {} sizes {}", to_string(*offsets), to_string(*sizes))),
                   key);
  made_.contents.add_chunk(where, {});
}

}  // namespace shardmesh::dcp
