// SPDX-License-Identifier: Apache-2.0
// The entries of a payload_reader, as a manifest states them. Reading and checking their bytes is in
// `payload_reader.cpp`.
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>
module shardmesh.torch_file;

namespace shardmesh::torch_file {
namespace {

// Number of payload elements that a view reaches; empty on overflow.
std::optional<std::int64_t> reach(const extents& sizes, const extents& strides, std::int64_t offset) {
  if (checked_volume(sizes) == 0) return 0;  // whatever the other sizes are
  std::int64_t last = offset;
  for (std::size_t d = 0; d < sizes.rank(); ++d) {
    const auto step = checked_multiply(sizes[d] - 1, strides[d]);
    const auto sum = step ? checked_add(last, *step) : std::nullopt;
    if (!sum) return std::nullopt;
    last = *sum;
  }
  return checked_add(last, 1);
}

}  // namespace

payload_reader::payload_reader(checkpoint_format format, std::filesystem::path path, const open_options& options)
    : budget_(std::make_shared<read_budget>(options.limits)) {
  contents_.format = format;
  path_ = std::move(path);
}

void payload_reader::add_tensor(tensor_entry entry) {
  entry.first_chunk = static_cast<std::int32_t>(payloads_.size());
  entry.chunk_count = 0;
  contents_.tensors.push_back(std::move(entry));
}

result<void> payload_reader::add_chunk(const box& where, const tensor_payload& payload) {
  const tensor_entry& tensor = contents_.tensors.back();
  const auto refuse = [&](error e) { return located(std::move(e), tensor.key, payload.place).with_box(where); };
  if (payloads_.size() >= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    return refuse(fail(errc::overflow, "there are more chunks than 32 bits can number"));
  SHARDMESH_TRY(budget_->build(static_cast<std::int64_t>(sizeof(tensor_payload) + 16 * where.sizes.rank())));
  if (!is_well_formed(where) || where.rank() != tensor.shape.rank() || !lies_within(where, box::whole(tensor.shape)))
    return refuse(fail(errc::out_of_bounds, "a part lies outside of the tensor")
                      .with_values(fmt::format("within {}", to_string(tensor.shape)), to_string(where)));
  if (!payload.is_archive) {
    bool is_odd = payload.strides.rank() != where.sizes.rank() || payload.storage_offset < 0;
    for (const std::int64_t stride : payload.strides) is_odd = is_odd || stride < 0;
    if (is_odd)
      return refuse(fail(errc::bad_format, "its strides and offset do not fit its sizes")
                        .with_values(to_string(where.sizes), to_string(payload.strides)));
    const auto elements = reach(where.sizes, payload.strides, payload.storage_offset);
    const auto bytes = elements ? size_bytes(tensor.type, *elements) : std::nullopt;
    if (!bytes || !checked_volume(where.sizes)) return refuse(fail(errc::overflow, "its size does not fit in 64 bits"));
    if (payload.place.length < 0 || *bytes > payload.place.length)
      return refuse(fail(errc::out_of_bounds, "has fewer bytes than its elements need")
                        .with_values(detail::counted(*bytes, "byte"), fmt::format("{}", payload.place.length)));
  }
  contents_.add_chunk(where, payload.place);
  payloads_.push_back(payload);
  return {};
}

void payload_reader::add_object(std::string key, shardmesh::path where, const stored_range& place) {
  contents_.objects.push_back({std::move(key), std::move(where), place, 0});
  objects_.push_back({place, nullptr});
}

void payload_reader::add_object(std::string key, shardmesh::path where, std::vector<std::byte> archive) {
  contents_.objects.push_back({std::move(key), std::move(where), {}, 0});
  objects_.push_back({{}, std::make_shared<const std::vector<std::byte>>(std::move(archive))});
}

// Views may repeat stored elements, and many tensors may share one payload. Reading stops at the tensor that takes the
// total past the plausible size.
void payload_reader::check_expanded() {
  std::vector<std::pair<std::int64_t, std::int64_t>> seen;  // file and offset of plain elements
  for (const stored_range& place : contents_.chunk_places) seen.emplace_back(place.file, place.offset);
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  std::vector<bool> is_counted(seen.size());
  for (const tensor_entry& tensor : contents_.tensors)
    for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk) {
      const tensor_payload& payload = payloads_[static_cast<std::size_t>(chunk)];
      if (payload.is_archive) continue;
      const extents sizes = contents_.chunk_box(tensor, chunk).sizes;
      const std::int64_t bytes = size_bytes(tensor.type, checked_volume(sizes).value_or(0)).value_or(0);
      const auto place = std::lower_bound(
          seen.begin(), seen.end(), std::pair<std::int64_t, std::int64_t>(payload.place.file, payload.place.offset));
      const auto number = static_cast<std::size_t>(place - seen.begin());
      const std::int64_t stored = is_counted[number] ? 0 : std::min(bytes, payload.place.length);
      is_counted[number] = true;
      auto done = budget_->expand(bytes - stored, stored);
      if (done) continue;
      first_expanded_ = chunk;
      expanded_ = located(std::move(done).error(), tensor.key, payload.place);
      problems_.push_back(*expanded_);
      return;
    }
}

}  // namespace shardmesh::torch_file
