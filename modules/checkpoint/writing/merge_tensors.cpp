// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <range/v3/view/zip.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :merge_tensors;

namespace shardmesh {
namespace {

// The digest of a tensor's elements in row-major order, read slab by slab.
result<digest128> elements_digest(const catalog& contents, const tensor_entry& tensor, chunk_source& source) {
  SHARDMESH_TRY(const distribution held, contents.distribution_of(tensor));
  xxh3_stream sum;
  slab_walk walk(box::whole(tensor.shape), (std::int64_t{4} << 20) / item_bytes(tensor.type));
  item_run_options run;
  run.threads = 1;
  while (const auto slab = walk.next()) {
    SHARDMESH_TRY(host_tensor values, host_tensor::make(tensor.type, slab->sizes));
    const memory_target target{0, *slab, adapter<host_tensor>::view(values)};
    SHARDMESH_TRY(run_to_memory({&held, 1}, {&tensor.key, 1}, {&target, 1}, source, run));
    sum.update(values.bytes());
  }
  return sum.digest();
}

class merging {
 public:
  merging(checkpoint_reader& reader, conversion& work, chunk_source& source, int threads)
      : contents_(reader.contents()),
        reader_(reader),
        work_(work),
        source_(source),
        threads_(threads),
        dropped_(work.tensors.size()) {}

  // Merges the names of one stored tensor: the same bytes of a file, seen through the same strides.
  result<void> merge_tied() {
    using first_place = std::tuple<std::int32_t, std::int32_t, std::int64_t, std::int64_t>;
    std::map<first_place, std::vector<std::size_t>> by_place;
    for (std::size_t i = 0; i < work_.tensors.size(); ++i) {
      const tensor_entry& tensor = stored(i);
      if (!may_merge(i) || tensor.chunk_count == 0) continue;
      const stored_range& place = contents_.chunk_places[static_cast<std::size_t>(tensor.first_chunk)];
      if (place.file >= 0 && place.length > 0)
        by_place[{place.file, place.transform, place.offset, place.length}].push_back(i);
    }
    for (const auto& [place, members] : by_place)
      if (members.size() > 1) SHARDMESH_TRY(merge_same_views(members));
    return {};
  }

  result<void> merge_equal() {
    // Keyed by the stored and the written dtype: only then do equal bytes mean equal values.
    std::map<std::tuple<dtype, dtype, extents>, std::vector<std::size_t>> alike;
    for (std::size_t i = 0; i < work_.tensors.size(); ++i) {
      const output_tensor& tensor = work_.tensors[i];
      if (dropped_[i] || !may_merge(i) || volume_of(i) < 2) continue;
      alike[{tensor.bytes.from_type, tensor.type, tensor.bytes.from.global_shape()}].push_back(i);
    }
    for (const auto& [shape, members] : alike) {
      if (members.size() < 2) continue;
      std::vector<digest128> digests(members.size());
      SHARDMESH_TRY(
          parallel_for(threads_, static_cast<std::int64_t>(members.size()), [&](std::int64_t i) -> result<void> {
            const auto at = static_cast<std::size_t>(i);
            SHARDMESH_TRY(digests[at], elements_digest(contents_, stored(members[at]), source_));
            return {};
          }));
      std::map<digest128, std::size_t> first;
      for (const auto& [member, digest] : ranges::views::zip(members, digests)) {
        const auto [kept, is_new] = first.try_emplace(digest, member);
        if (!is_new) drop(member, kept->second, "has the bytes of");
      }
    }
    return {};
  }

  void finish() {
    std::size_t at = 0;
    drop_tensors(work_, [&](const output_tensor&) { return dropped_[at++]; });
  }

 private:
  const tensor_entry& stored(std::size_t i) const { return contents_.tensors[work_.sources[i]]; }
  std::int64_t volume_of(std::size_t i) const {
    return box::whole(work_.tensors[i].bytes.from.global_shape()).volume();
  }
  bool may_merge(std::size_t i) const {
    const output_tensor& tensor = work_.tensors[i];
    return !tensor.archive && !is_optimizer_key(tensor.key) && bits(tensor.bytes.from_type) % 8 == 0 &&
           volume_of(i) > 0;
  }

  // Merges the members that view the same bytes in the same way. Precondition: their first chunks are at one place of a
  // file.
  result<void> merge_same_views(const std::vector<std::size_t>& members) {
    using part = std::tuple<box, std::int32_t, std::int64_t, std::int64_t, extents, std::int64_t, bool, bool>;
    std::map<std::tuple<dtype, dtype, extents, std::vector<part>>, std::size_t> first;
    for (const std::size_t i : members) {
      const tensor_entry& tensor = stored(i);
      std::vector<part> parts;
      bool unclear = false;
      for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk) {
        SHARDMESH_TRY(const auto opened, reader_.open_chunk(tensor, chunk));
        const stored_tensor& view = opened->tensor;
        unclear |= opened->reads_in_order && contents_.format == checkpoint_format::dcp;
        const stored_range& place = contents_.chunk_places[static_cast<std::size_t>(chunk)];
        parts.emplace_back(contents_.chunk_box(tensor, chunk), place.file, place.offset, view.begin, view.strides,
                           view.storage_offset, view.conjugate, view.negative);
      }
      // Compressed parts of one item begin at the same place, so their storages cannot be told apart.
      if (unclear) continue;
      const output_tensor& made = work_.tensors[i];
      const auto [kept, is_new] =
          first.try_emplace({made.bytes.from_type, made.type, tensor.shape, std::move(parts)}, i);
      if (!is_new) drop(i, kept->second, "is tied to");
    }
    return {};
  }

  void drop(std::size_t i, std::size_t kept, std::string_view why) {
    dropped_[i] = true;
    work_.notes.push_back(
        fmt::format("{} {} {} and is written once", work_.tensors[i].key, why, work_.tensors[kept].key));
  }

  const catalog& contents_;
  checkpoint_reader& reader_;
  conversion& work_;
  chunk_source& source_;
  int threads_;
  std::vector<bool> dropped_;
};

}  // namespace

result<void> merge_tensors(checkpoint_reader& reader, conversion& work, dedup_rule how, chunk_source& source,
                           int threads) {
  if (how == dedup_rule::none) return {};
  merging run(reader, work, source, threads);
  SHARDMESH_TRY(run.merge_tied());
  if (how == dedup_rule::equal) SHARDMESH_TRY(run.merge_equal());
  run.finish();
  return {};
}

}  // namespace shardmesh
