// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.torch_file;

namespace shardmesh::torch_file {
namespace {

constexpr std::int64_t archive_limit_bytes = std::int64_t{4} << 30;
constexpr int archives_at_a_time = 16;  // under a URL, where opening one takes several requests

std::string name_of(const stored_range& place) {
  return fmt::format("{}:{}:{}", place.file, place.offset, place.length);
}

}  // namespace

error payload_reader::located(error e, const std::string& key, const stored_range& place) const {
  if (e.key.empty()) e.key = key;
  if (!e.file.empty()) return e;
  if (place.file < 0) return std::move(e).with_file(path_.string());
  const std::string& file = contents_.files[static_cast<std::size_t>(place.file)];
  return std::move(e).with_file(places::name_of(path_) == file ? path_.string() : (path_ / file).string());
}

result<opened_object> payload_reader::open_archive(std::shared_ptr<const byte_source> source, std::string place) const {
  SHARDMESH_TRY(item opened, item::open(*source, {.pickle_limit_bytes = budget_->limits().description_bytes,
                                                  .budget = budget_.get()}));
  return opened_object{std::move(source), std::make_shared<const item>(std::move(opened)), budget_, std::move(place)};
}

result<opened_chunk> payload_reader::open_payload(const tensor_entry& tensor, std::int32_t chunk) {
  const tensor_payload& payload = payloads_[static_cast<std::size_t>(chunk)];
  const extents sizes = contents_.chunk_box(tensor, chunk).sizes;
  SHARDMESH_TRY(auto source, section(payload.place));
  if (!payload.is_archive) {
    opened_chunk opened;
    opened.tensor = contiguous_stored_tensor(tensor.type, sizes, 0, source->size_bytes());
    opened.tensor.strides = payload.strides;
    opened.tensor.storage_offset = payload.storage_offset;
    if (payload.crc32 != 0) opened.crc_length = source->size_bytes(), opened.crc32 = payload.crc32;
    opened.source = std::move(source);
    return opened;
  }
  SHARDMESH_TRY(const opened_object archive, open_archive(std::move(source), name_of(payload.place)));
  const pickle::value root = archive.item->root();
  const auto number = archive.item->tensor_of(root);
  if (!number) {
    const object_class what = classify(*archive.item, root);
    if (what.kind == object_kind::opaque_tensor)
      return fail(errc::unsupported, fmt::format("holds a {}, which is not supported", tensor_kind(root)))
          .with_values("", what.type);
    return fail(errc::bad_format, "the archive is not a tensor").with_values("torch.Tensor", what.type);
  }
  SHARDMESH_TRY(opened_chunk opened,
                open_tensor(*archive.item, *number, archive.source, *budget_, name_of(payload.place)));
  if (opened.tensor.type != tensor.type)
    return fail(errc::dtype_mismatch, "the stored dtype is not the declared one")
        .with_values(std::string(name(tensor.type)), std::string(name(opened.tensor.type)));
  if (opened.tensor.sizes != sizes)
    return fail(errc::shape_mismatch, "the stored sizes are not the declared ones")
        .with_values(to_string(sizes), to_string(opened.tensor.sizes));
  const std::int64_t bytes = size_bytes(opened.tensor.type, checked_volume(sizes).value_or(0)).value_or(0);
  SHARDMESH_TRY(budget_->expand(std::max<std::int64_t>(0, bytes - opened.tensor.size_bytes), opened.tensor.size_bytes));
  return opened;
}

result<std::shared_ptr<const opened_chunk>> payload_reader::open_chunk(const tensor_entry& tensor, std::int32_t chunk) {
  if (chunk >= first_expanded_) return *expanded_;
  if (auto known = cache_.find(chunk)) return known;
  if (const auto refusal = budget_->refusal()) return *refusal;
  auto opened = open_payload(tensor, chunk);
  if (!opened) {
    error problem = located(std::move(opened).error(), tensor.key, payloads_[static_cast<std::size_t>(chunk)].place);
    if (problem.boxes.empty()) problem.boxes.push_back(contents_.chunk_box(tensor, chunk));
    return budget_->keep(std::move(problem));
  }
  auto shared = std::make_shared<const opened_chunk>(std::move(*opened));
  cache_.insert(chunk, shared);
  return shared;
}

result<opened_object> payload_reader::open_object(std::size_t index) {
  const object_entry& entry = contents_.objects[index];
  if (const auto refusal = budget_->refusal()) return *refusal;
  auto opened = [&]() -> result<opened_object> {
    const stored_object& object = objects_[index];
    if (object.archive) return open_archive(std::make_shared<owned_source>(object.archive, path_.string()), entry.key);
    SHARDMESH_TRY(auto source, section(object.place));
    return open_archive(std::move(source), name_of(object.place));
  }();
  if (!opened) return budget_->keep(located(std::move(opened).error(), entry.key, entry.place));
  return opened;
}

result<object_value> payload_reader::read_object(std::size_t index) {
  const object_entry& entry = contents_.objects[index];
  SHARDMESH_TRY(const opened_object opened, open_object(index));
  auto value = [&]() -> result<object_value> {
    SHARDMESH_TRY(object_value described, describe_object(*opened.item, opened.item->root(), *opened.source, *budget_));
    SHARDMESH_TRY(described.tensors, tensors_inside(*opened.item, entry));
    return described;
  }();
  if (!value) return budget_->keep(located(std::move(value).error(), entry.key, entry.place));
  return value;
}

// Returns the bytes for copying. They are checked first, so that a damaged record never gets a fresh checksum.
result<std::vector<std::byte>> payload_reader::object_archive(std::size_t index) {
  const stored_object& object = objects_[index];
  if (object.archive) return *object.archive;
  auto bytes = [&]() -> result<std::vector<std::byte>> {
    SHARDMESH_TRY(const auto source, section(object.place));
    SHARDMESH_TRY(std::vector<std::byte> archive, read_all(*source, archive_limit_bytes));
    SHARDMESH_TRY(check_archive(memory_source(archive, source->name()), budget_.get(), name_of(object.place)));
    return archive;
  }();
  if (!bytes) return located(std::move(bytes).error(), contents_.objects[index].key, object.place);
  return bytes;
}

result<std::vector<std::byte>> payload_reader::chunk_archive(const tensor_entry& tensor, std::int32_t chunk) {
  const tensor_payload& payload = payloads_[static_cast<std::size_t>(chunk)];
  if (!payload.is_archive) return checkpoint_reader::chunk_archive(tensor, chunk);
  auto bytes = [&]() -> result<std::vector<std::byte>> {
    SHARDMESH_TRY(const auto source, section(payload.place));
    SHARDMESH_TRY(std::vector<std::byte> archive, read_all(*source, archive_limit_bytes));
    SHARDMESH_TRY(check_archive(memory_source(archive, source->name()), budget_.get(), name_of(payload.place)));
    return archive;
  }();
  if (!bytes) return located(std::move(bytes).error(), tensor.key, payload.place);
  return bytes;
}

check_outcome payload_reader::check_whole(std::span<const whole_entry> entries, const check_options& options) {
  using sums = std::pair<std::int64_t, std::int64_t>;
  const auto check = [&](const stored_range& place) -> result<sums> {
    SHARDMESH_TRY(const opened_object archive, [&]() -> result<opened_object> {
      SHARDMESH_TRY(auto source, section(place));
      return open_archive(std::move(source), name_of(place));
    }());
    if (options.quick) return sums{};
    SHARDMESH_TRY(const record_sums found, check_archive(*archive.source, budget_.get(), name_of(place)));
    return sums{found.checked_bytes, found.unchecked_bytes};
  };
  // A range that several entries share is checked once.
  std::mutex lock;
  std::set<std::tuple<std::int32_t, std::int64_t, std::int64_t>> met;
  const auto is_first = [&](const stored_range& place) {
    const std::scoped_lock guard(lock);
    return met.emplace(place.file, place.offset, place.length).second;
  };
  return check_each(entries, options, [&](const whole_entry& entry) -> result<sums> {
    const std::string& key = entry.is_tensor ? contents_.tensors[entry.index].key : contents_.objects[entry.index].key;
    std::vector<stored_range> places;
    if (!entry.is_tensor && !objects_[entry.index].archive) places.push_back(objects_[entry.index].place);
    if (entry.is_tensor) {
      const tensor_entry& tensor = contents_.tensors[entry.index];
      for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk)
        if (payloads_[static_cast<std::size_t>(chunk)].is_archive)
          places.push_back(payloads_[static_cast<std::size_t>(chunk)].place);
    }
    sums total;
    for (const stored_range& place : places) {
      if (!is_first(place)) continue;
      auto found = check(place);
      if (!found) return budget_->keep(located(std::move(found).error(), key, place));
      total = {total.first + found->first, total.second + found->second};
    }
    return total;
  });
}

result<std::optional<digest128>> payload_reader::content_of(const whole_entry& entry) {
  const stored_range place =
      entry.is_tensor && contents_.tensors[entry.index].chunk_count == 1
          ? contents_.chunk_places[static_cast<std::size_t>(contents_.tensors[entry.index].first_chunk)]
          : stored_range{};
  if (entry.is_tensor && place.file < 0) return std::optional<digest128>();
  auto digest = [&]() -> result<digest128> {
    SHARDMESH_TRY(const opened_object opened, [&]() -> result<opened_object> {
      if (!entry.is_tensor) return open_object(entry.index);
      SHARDMESH_TRY(auto source, section(place));
      return open_archive(std::move(source), name_of(place));
    }());
    SHARDMESH_TRY(item_storages storages,
                  item_storages::open(*opened.source, *opened.item, budget_.get(), opened.place));
    return storages.content_of(opened.item->root());
  }();
  const std::string& key = entry.is_tensor ? contents_.tensors[entry.index].key : contents_.objects[entry.index].key;
  if (!digest) return located(std::move(digest).error(), key, place);
  return std::optional(*digest);
}

void payload_reader::identify_opaque_tensors() {
  if (is_identified_) return;
  std::vector<tensor_entry*> unknown;
  for (tensor_entry& tensor : contents_.tensors)
    if (tensor.chunk_count > 0 && tensor.opaque_type.empty() &&
        payloads_[static_cast<std::size_t>(tensor.first_chunk)].is_archive)
      unknown.push_back(&tensor);
  const int at_a_time = is_url(path_) ? archives_at_a_time : 1;
  const auto done = parallel_for(at_a_time, std::ssize(unknown), [&](std::int64_t i) -> result<void> {
    SHARDMESH_TRY(detail::check_current_call());
    identify(*unknown[static_cast<std::size_t>(i)]);
    return detail::check_current_call();  // a limit also ends the reads of an archive
  });
  is_identified_ = done.has_value();  // else the next call continues
}

void payload_reader::identify(tensor_entry& tensor) {
  const tensor_payload& payload = payloads_[static_cast<std::size_t>(tensor.first_chunk)];
  auto source = section(payload.place);
  if (!source) return;  // reading and `verify` report the error
  const auto archive = open_archive(*std::move(source), name_of(payload.place));
  if (!archive || !archive->item->is_opaque_tensor(archive->item->root())) return;
  tensor.opaque_type = classify(*archive->item, archive->item->root()).type;
  tensor.opaque_kind = tensor_kind(archive->item->root());
}

}  // namespace shardmesh::torch_file
