// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.torch_file;

namespace shardmesh::torch_file {

stored_tensor stored_form(const torch_file::item& item, std::size_t tensor) {
  const torch_file::tensor& view = item.tensors()[tensor];
  const torch_file::storage& storage = item.storages()[view.storage];
  stored_tensor made;
  made.begin = storage.offset;
  made.size_bytes = storage.size_bytes;
  made.type = view.type;
  made.sizes = view.sizes;
  made.strides = view.strides;
  made.storage_offset = view.storage_offset;
  made.swap_bytes = item.byte_order() != std::endian::native;
  made.conjugate = view.conj;
  made.negative = view.neg;
  return made;
}

result<opened_chunk> open_tensor(const torch_file::item& item, std::size_t tensor,
                                 std::shared_ptr<const byte_source> source, read_budget& budget,
                                 std::string_view place) {
  const torch_file::storage& storage = item.storages()[item.tensors()[tensor].storage];
  opened_chunk opened;
  opened.tensor = stored_form(item, tensor);
  if (storage.method == 0) {
    opened.source = std::move(source);
  } else if (storage.method == 8) {
    auto encoded = std::make_unique<shared_section>(std::move(source), storage.offset, storage.stored_bytes);
    SHARDMESH_TRY(
        std::unique_ptr<byte_source> decoded,
        open_decoding_source(std::move(encoded), codec::deflate, &budget, fmt::format("{}:{}", place, storage.offset)));
    if (decoded->size_bytes() != storage.size_bytes)
      return fail(errc::bad_format, "a deflated record does not have its declared length")
          .with_values(detail::counted(storage.size_bytes, "byte"), fmt::format("{}", decoded->size_bytes()));
    opened.source = std::move(decoded);
    opened.tensor.begin = 0;
    opened.reads_in_order = true;
  } else {
    return fail(errc::unsupported, fmt::format("a record is compressed with ZIP method {}", storage.method));
  }
  if (storage.crc32 != 0) {
    opened.crc_begin = opened.tensor.begin;
    opened.crc_length = storage.size_bytes;
    opened.crc32 = storage.crc32;
  }
  return opened;
}

result<object_value> describe_object(const torch_file::item& item, const pickle::value& value,
                                     const byte_source& source, read_budget& budget) {
  const object_class what = classify(item, value);
  object_value described{std::string(name(what.kind)), what.type, "null"};
  if (what.kind == object_kind::opaque_tensor) return described;
  object_json_options options{.budget = &budget};
  options.limit_bytes = std::max(options.limit_bytes, budget.limits().description_bytes / 4);  // the factor raises it
  SHARDMESH_TRY(described.json, object_json(source, item, value, options));
  return described;
}

}  // namespace shardmesh::torch_file
