// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <try.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.torch_file;

namespace shardmesh {

result<opened_chunk> open_torch_tensor(const torch_item& item, std::size_t tensor,
                                       std::shared_ptr<const byte_source> source, read_budget& budget,
                                       std::string_view place) {
  const torch_tensor& view = item.tensors()[tensor];
  const torch_storage& storage = item.storages()[view.storage];
  opened_chunk opened;
  opened.tensor.size_bytes = storage.size_bytes;
  opened.tensor.type = view.type;
  opened.tensor.sizes = view.sizes;
  opened.tensor.strides = view.strides;
  opened.tensor.storage_offset = view.storage_offset;
  opened.tensor.swap_bytes = item.byte_order() != std::endian::native;
  opened.tensor.conjugate = view.conj;
  opened.tensor.negative = view.neg;
  if (storage.method == 0) {
    opened.source = std::move(source);
    opened.tensor.begin = storage.offset;
  } else if (storage.method == 8) {
    auto encoded = std::make_unique<shared_section>(std::move(source), storage.offset, storage.stored_bytes);
    SHARDMESH_TRY(
        std::unique_ptr<byte_source> decoded,
        open_decoding_source(std::move(encoded), codec::deflate, &budget, fmt::format("{}:{}", place, storage.offset)));
    if (decoded->size_bytes() != storage.size_bytes)
      return fail(errc::bad_format, "a deflated record has another length than declared")
          .with_values(fmt::format("{} bytes", storage.size_bytes), fmt::format("{}", decoded->size_bytes()));
    opened.source = std::move(decoded);
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

result<object_value> describe_object(const torch_item& item, const pickle_value& value, const byte_source& source,
                                     read_budget& budget) {
  const object_class what = classify(item, value);
  object_value described{std::string(name(what.kind)), what.type, "null"};
  if (what.kind == object_kind::opaque_tensor) return described;
  SHARDMESH_TRY(described.json, object_json(source, item, value, {.budget = &budget}));
  return described;
}

}  // namespace shardmesh
