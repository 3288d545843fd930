// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <restore_hint.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>
module shardmesh.delta;

import shardmesh.core;
import shardmesh.digest;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import shardmesh.torch_file;
import :block_entry;
import :block_grid;
import :delta_source;
import :description;
import :file_header;

namespace shardmesh {
namespace {

using delta::described_object;
using delta::described_tensor;

// The objects and opaque tensors of a delta, which are archives of torch.save in its file.
class delta_archives final : public torch_file::payload_reader {
 public:
  delta_archives(const std::filesystem::path& file, std::shared_ptr<const byte_source> source,
                 const open_options& options)
      : payload_reader(checkpoint_format::delta, file, options), source_(std::move(source)) {
    contents_.files.push_back(places::name_of(file).string());
  }

  result<void> list(const delta::description& described) {
    for (const described_tensor& one : described.tensors) {
      if (!one.archive) continue;
      add_tensor(one.entry);
      torch_file::tensor_payload payload;
      payload.place = place_of(*one.archive);
      payload.is_archive = true;
      SHARDMESH_TRY(add_chunk(box::whole(one.entry.shape), payload));
    }
    for (const described_object& one : described.objects) add_object(one.key, one.where, place_of(one.archive));
    return {};
  }

  result<std::shared_ptr<const byte_source>> item_bytes(const stored_range& place) override { return section(place); }

 protected:
  // Every use of an archive passes through here, so none is used unchecked.
  result<std::shared_ptr<const byte_source>> section(const stored_range& place) override {
    std::shared_ptr<const byte_source> bytes = std::make_shared<shared_section>(source_, place.offset, place.length);
    const auto digest = digests_.find(place.offset);
    if (place.length == 0 || digest == digests_.end()) return bytes;
    SHARDMESH_TRY(const digest128 found, xxh3_of_range(*bytes, 0, place.length));
    if (found == digest->second) return bytes;
    return fail(errc::checksum_mismatch, "the archive in the delta is damaged")
        .with_file(source_->name())
        .with_values("xxh3-128 " + to_hex(digest->second), to_hex(found))
        .with_hint(detail::restore_hint);
  }

 private:
  stored_range place_of(const delta::stored_archive& archive) {
    if (archive.length > 0) digests_.emplace(archive.offset, archive.digest);
    return {0, 0, archive.offset, archive.length};
  }

  std::shared_ptr<const byte_source> source_;
  std::map<std::int64_t, digest128> digests_;  // by offset
};

class delta_reader final : public torch_file::archive_forwarding_reader {
 public:
  delta_reader(std::unique_ptr<checkpoint_reader> base, std::unique_ptr<checkpoint_reader> archives,
               std::shared_ptr<const byte_source> file, delta::description described)
      : archive_forwarding_reader(std::move(archives)),
        base_(std::move(base)),
        base_chunks_(*base_),
        described_(std::move(described)),
        memory_(described_.block_bytes),
        input_{base_.get(), &base_chunks_, &described_, std::move(file), &memory_} {}

  result<void> list() {
    std::vector<error> problems;
    std::size_t archive = 0;
    for (const described_tensor& one : described_.tensors) {
      bases_.push_back(nullptr);
      if (one.archive) {
        add_whole_tensor(archive++);
        continue;
      }
      if (one.has_base) {
        auto found = base_of(one.entry);
        if (found)
          bases_.back() = *found;
        else
          problems.push_back(std::move(found).error());
      }
      const std::int64_t offset =
          one.grid.count() > 0 ? described_.blocks[one.first_block].offset : delta::header_bytes;
      add_tensor(one.entry, std::nullopt);
      // The length of 0 means that the bytes are not those of an item.
      add_chunk(box::whole(one.entry.shape), {0, 0, offset, 0}, {0, -1});
    }
    if (!problems.empty()) return fail_all(std::move(problems));
    contents_.texts = described_.texts;
    return check_distinct_keys(contents_, "two entries of the delta have the same name");
  }

  const checkpoint_reader& stored() const override { return *this; }

  // Each tensor has one chunk, so both have the same number.
  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    const auto index = static_cast<std::size_t>(chunk);
    const described_tensor& one = described_.tensors[index];
    if (one.archive) return forwarding_reader::open_chunk(tensor, chunk);
    auto opened = std::make_shared<opened_chunk>();
    opened->source = delta::make_delta_source(input_, index, bases_[index]);
    opened->tensor = contiguous_stored_tensor(one.entry.type, one.entry.shape, 0, opened->source->size_bytes());
    return std::shared_ptr<const opened_chunk>(std::move(opened));
  }

  result<void> finish_checks() override {
    SHARDMESH_TRY(base_->finish_checks());
    return forwarding_reader::finish_checks();
  }

 private:
  // Returns the base's tensor to which the blocks of a tensor apply.
  result<const tensor_entry*> base_of(const tensor_entry& made) const {
    const auto refuse = [&](errc code, std::string message) {
      return fail(code, std::move(message))
          .with_key(made.key)
          .with_file(base_->path().string())
          .with_hint("apply the delta to the checkpoint from which it was made");
    };
    const tensor_entry* const found = base_->contents().find(made.key);
    if (found == nullptr) return refuse(errc::missing_key, "the base lacks a tensor that the delta changes or keeps");
    if (found->type != made.type || !found->opaque_type.empty())
      return refuse(errc::dtype_mismatch, "the tensor has another dtype in the base than the delta expects")
          .with_values(std::string(name(made.type)), std::string(name(found->type)));
    if (found->shape != made.shape)
      return refuse(errc::shape_mismatch, "the tensor has another shape in the base than the delta expects")
          .with_values(to_string(made.shape), to_string(found->shape));
    return found;
  }

  std::unique_ptr<checkpoint_reader> base_;
  chunk_source base_chunks_;
  delta::description described_;
  delta::block_memory memory_;
  delta::delta_input input_;
  std::vector<const tensor_entry*> bases_;  // one per tensor; null: it is stored without a base
};

result<delta::description> read_description(const byte_source& source, read_budget& budget) {
  SHARDMESH_TRY(const delta::file_header header, delta::read_header(source));
  SHARDMESH_TRY(
      const std::vector<std::byte> bytes,
      read_range(source, header.description_offset, header.description_bytes, budget.limits().description_bytes));
  const digest128 found = xxh3(bytes);
  if (found != header.description)
    return fail(errc::checksum_mismatch, "the description of the delta is damaged")
        .with_values("xxh3-128 " + to_hex(header.description), to_hex(found))
        .with_hint(detail::restore_hint);
  return delta::parse_description(bytes, header, budget);
}

error in_file(error why, const std::filesystem::path& file) {
  if (!why.file.empty()) return why;
  return std::move(why).with_file(file.string());
}

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open_delta(std::unique_ptr<checkpoint_reader> base,
                                                      const std::filesystem::path& file, const open_options& options) {
  const detail::call_scope limits(options.call().named("opening"));
  if (auto checked = detail::check_current_call(); !checked) return in_file(std::move(checked).error(), file);
  file_pool pool = options.pool();
  SHARDMESH_TRY(std::shared_ptr<const byte_source> source, pool.open(file));
  read_budget budget(options.limits);
  auto described = read_description(*source, budget);
  if (!described) return in_file(std::move(described).error(), file);
  auto archives = std::make_unique<delta_archives>(file, source, options);
  if (auto listed = archives->list(*described); !listed) return in_file(std::move(listed).error(), file);
  auto reader =
      std::make_unique<delta_reader>(std::move(base), std::move(archives), std::move(source), *std::move(described));
  if (auto listed = reader->list(); !listed) return in_file(std::move(listed).error(), file);
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

}  // namespace shardmesh
