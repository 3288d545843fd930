// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <range/v3/view/zip.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.dcp;
import :sidecar_metadata;
import :entry_check;
import :conversion_view;

namespace shardmesh {
namespace {

// Every distinct box of a layout with its holders, in ascending order of the boxes.
std::map<box, std::vector<owner_id>> holders_of(const distribution& held) {
  std::map<box, std::vector<owner_id>> holders;
  held.for_each_owner([&](owner_id owner) {
    held.fragments_of(owner, [&](const fragment& f) {
      if (!f.where.is_empty()) holders[f.where].push_back(owner);
      return true;
    });
  });
  return holders;
}

std::int64_t bytes_of(const output_tensor& tensor, const box& where) {
  return size_bytes(tensor.type, where.volume()).value_or(0);
}

class planning {
 public:
  // `reader` shows the entries of `seen`. `left_out` receives the entries that are skipped as unsupported.
  planning(checkpoint_reader& reader, const conversion_view& seen, const reshard_options& options,
           std::vector<whole_entry>& left_out)
      : options_(options) {
    conversion chosen = select_for_output(reader, options.selection);
    leave_to_side_files(reader, chosen);
    find_disputed(reader, chosen, true);
    find_unpicklable(reader, chosen);
    if (auto lost = find_lost_tensors(reader, chosen, options.skip_unsupported))
      chosen.problems.push_back(*std::move(lost));
    save_report skipped;
    settle_unsupported(chosen, options.skip_unsupported, skipped);
    left_out = unsupported_entries(reader.contents(), chosen);
    for (std::string& note : seen.notes_of_components(chosen)) chosen.notes.push_back(std::move(note));
    make_objects_of_layouts(chosen);
    plan_.skipped_tensors = skipped.skipped_tensors;
    plan_.skipped_objects = skipped.skipped_objects;
    plan_.problems = std::move(chosen.problems);
    plan_.notes = std::move(chosen.notes);
    plan_.tensors = std::move(chosen.tensors);
    plan_.objects = std::move(chosen.objects);
    plan_.sources = std::move(chosen.sources);
    plan_.object_sources = std::move(chosen.object_sources);
    plan_.excluded = chosen.excluded;
  }

  reshard_plan run() {
    if (plan_.problems.empty()) options_.like ? cut_like() : cut_for_mesh();
    for (output_object& object : plan_.objects) object.rank = 0;
    return std::move(plan_);
  }

 private:
  void cut_for_mesh() {
    std::vector<keyed_shape> entries;
    std::vector<std::size_t> which;
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      if (plan_.tensors[i].archive) continue;  // copied verbatim, to one holder
      entries.push_back({plan_.tensors[i].key, plan_.tensors[i].bytes.from.global_shape()});
      which.push_back(i);
    }
    placement_options how;
    how.allow_unused = options_.selection.allow_unused;
    how.optimizer_follows = options_.optimizer_follows;
    how.default_placements = options_.default_placements;
    placement_resolution resolved = resolve_placements(entries, *options_.mesh, options_.place, how);
    for (error& problem : resolved.errors) plan_.problems.push_back(std::move(problem));
    if (!plan_.problems.empty()) return;
    for (std::string& note : resolved.notes) plan_.notes.push_back(std::move(note));
    plan_.ranks = options_.mesh->rank_limit();
    for (const auto& [i, placements] : ranges::views::zip(which, resolved.placements))
      cut(plan_.tensors[i], placements);
    for (output_tensor& tensor : plan_.tensors)
      if (tensor.archive)
        tensor.chunks.front().rank = balance_.give(all_ranks(), bytes_of(tensor, tensor.chunks.front().where));
  }

  std::vector<owner_id> all_ranks() const {
    std::vector<owner_id> ranks;
    for (std::int32_t rank = 0; rank < plan_.ranks; ++rank)
      if (options_.mesh->coordinate_of(rank)) ranks.push_back(rank);
    return ranks;
  }

  void cut(output_tensor& tensor, const std::vector<placement>& placements) {
    const extents& shape = tensor.bytes.from.global_shape();
    auto wanted = stored_layout(*options_.mesh, placements, shape);
    auto held = wanted ? distribute(*wanted) : result<distribution>(std::move(wanted).error());
    if (!held) return plan_.problems.push_back(std::move(held).error().with_key(tensor.key));
    if (bits(tensor.type) % 8 != 0 && holders_of(*held).size() > 1)
      return plan_.problems.push_back(
          fail(errc::unaligned, fmt::format("{} cannot be cut", name(tensor.type))).with_key(tensor.key));
    tensor.chunks.clear();
    for (const auto& [where, holders] : holders_of(*held))
      tensor.chunks.push_back({where, balance_.give(holders, bytes_of(tensor, where))});
    if (tensor.chunks.empty())
      tensor.chunks.push_back({box::whole(shape), options_.mesh->rank_at(extents::filled(options_.mesh->rank(), 0))});
  }

  void cut_like() {
    conversion model = select_for_output(*options_.like, {});
    for (error& problem : model.problems) plan_.problems.push_back(std::move(problem));
    std::unordered_map<std::string_view, const output_tensor*> by_key;
    for (const output_tensor& tensor : model.tensors) by_key.emplace(tensor.key, &tensor);
    for (output_tensor& tensor : plan_.tensors) {
      const auto found = by_key.find(tensor.key);
      if (found == by_key.end()) {
        // In `like`, the tensor has no archive of its own. Here it has one, which is never cut.
        if (tensor.archive && options_.like->contents().find(tensor.key) != nullptr) {
          plan_.ranks = std::max(plan_.ranks, tensor.chunks.front().rank + 1);
          continue;
        }
        error missing = fail(errc::missing_key, "the checkpoint given by like has no such tensor").with_key(tensor.key);
        if (plan_.problems.size() < most_suggestions)
          missing.hint = did_you_mean(nearest_key(options_.like->contents(), tensor.key));
        plan_.problems.push_back(std::move(missing));
        continue;
      }
      const extents& shape = tensor.bytes.from.global_shape();
      const extents& wanted = found->second->bytes.from.global_shape();
      if (shape != wanted) {
        plan_.problems.push_back(fail(errc::shape_mismatch, "the checkpoint given by like has another shape")
                                     .with_key(tensor.key)
                                     .with_values(to_string(shape), to_string(wanted))
                                     .with_hint("pass allow_shape_mismatch to cut it or fill it with zeros"));
        continue;
      }
      tensor.chunks = found->second->chunks;
      for (const output_chunk& chunk : tensor.chunks) plan_.ranks = std::max(plan_.ranks, chunk.rank + 1);
    }
  }

  const reshard_options& options_;
  reshard_plan plan_;
  load_balancer balance_;
};

reshard_plan make_plan(checkpoint_reader& given, const reshard_options& options, std::vector<whole_entry>& left_out) {
  if (!options.mesh && !options.like) {
    reshard_plan refused;
    refused.problems.push_back(fail(errc::invalid_argument, "pass a mesh, or the checkpoint like"));
    return refused;
  }
  const auto refuse = [](error why) {
    reshard_plan refused;
    refused.problems.push_back(std::move(why));
    return refused;
  };
  conversion_view seen(given);
  if (auto done = seen.give_archives(); !done) return refuse(std::move(done).error());
  auto shown = seen.release();
  std::vector<std::string> notes;
  if (options.like && options.allow_shape_mismatch) {
    auto made = resize_like(seen.last(), options.selection, *options.like, notes);
    if (!made) return refuse(std::move(made).error());
    if (*made) shown.push_back(*std::move(made));
  }
  checkpoint_reader& reader = shown.empty() ? given : *shown.back();
  reshard_plan plan = planning(reader, seen, options, left_out).run();
  plan.shown = std::move(shown);
  plan.notes.insert(plan.notes.end(), notes.begin(), notes.end());
  if (!plan.problems.empty()) return plan;
  if (auto carried = carried_to_dcp(reader, plan.tensors, plan.objects, plan.notes); !carried)
    plan.problems.push_back(std::move(carried).error());
  return plan;
}

}  // namespace

reshard_plan plan_reshard(checkpoint_reader& given, const reshard_options& options) {
  std::vector<whole_entry> left_out;
  return make_plan(given, options, left_out);
}

result<save_report> reshard(checkpoint_reader& given, const std::filesystem::path& destination,
                            const reshard_options& options) {
  const detail::call_scope limits(options.saving().call().named("reshard"));
  const places::remembered_answers answers;  // the source may lie under a URL
  SHARDMESH_TRY(detail::check_can_write(destination));
  SHARDMESH_TRY(check_disjoint(destination, given));
  if (options.like) SHARDMESH_TRY(check_disjoint(destination, *options.like));
  std::vector<whole_entry> left_out;
  reshard_plan plan = make_plan(given, options, left_out);
  if (!plan.problems.empty()) return fail_all(std::move(plan.problems));
  checkpoint_reader& reader = plan.shown.empty() ? given : *plan.shown.back();
  SHARDMESH_TRY(const std::shared_ptr<const recorded_sums> record, recorded_sums::open(reader));
  conversion work;
  work.tensors = std::move(plan.tensors);
  work.objects = std::move(plan.objects);
  work.sources = std::move(plan.sources);
  work.object_sources = std::move(plan.object_sources);
  std::vector<error> problems = find_path_conflicts(work.tensors, work.objects);
  if (problems.empty()) problems = check_before_copying(reader, work, left_out, record.get(), options.threads);
  if (problems.empty()) problems = check_side_entries(reader, options.threads);
  if (!problems.empty()) return fail_all(std::move(problems));
  std::vector<std::string> said;  // already in the plan's notes
  SHARDMESH_TRY(const auto extras, carried_to_dcp(reader, work.tensors, work.objects, said));
  chunk_source source = chunk_source::checking(reader, record);
  SHARDMESH_TRY(save_report report,
                dcp::save(destination, std::move(work.tensors), work.objects, source, extras,
                          replacing_checkpoints(with_last_check(options.saving(), reader, source))));
  report.notes.insert(report.notes.begin(), plan.notes.begin(), plan.notes.end());
  report.excluded = plan.excluded;
  report.skipped_tensors = plan.skipped_tensors;
  report.skipped_objects = plan.skipped_objects;
  return report;
}

}  // namespace shardmesh
