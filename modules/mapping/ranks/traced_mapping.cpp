// SPDX-License-Identifier: Apache-2.0
// Traces the tensors and objects of a chain of mappings back to the first sources.
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.layout;
import shardmesh.transfer;
import :element_pieces;
import :mapped_moves;
import :mapping_notes;
import :piece_chain;

namespace shardmesh {
namespace {

// Checks that ranks hold every element of a source, each in one box or its replicas.
result<void> check_held(const distribution& where) {
  if (where.space() != owner_space::ranks) return fail(errc::unsupported, "the tensor is held by items, not by ranks");
  if (where.is_complete()) return {};
  const cover_report cover = check_cover(where, 1);
  if (cover.problems.empty()) return {};
  const cover_problem& problem = cover.problems[0];
  const errc code = problem.kind == cover_kind::gap       ? errc::gap
                    : problem.kind == cover_kind::overlap ? errc::overlap
                                                          : errc::out_of_bounds;
  return fail(code, to_string(problem)).with_box(problem.where);
}

// Applies a mapping to objects: those of an optimizer's parameters follow them, and lists get the new names.
std::vector<traced_object> followed(const std::shared_ptr<const list_mapping>& through,
                                    std::vector<traced_object> objects) {
  const bound_mapping& bound = through->bound;
  for (const bound_list& list : bound.lists) objects[list.object].lists.push_back({through, list});
  std::vector<bool> is_gone(objects.size(), false);
  for (const std::size_t unused : bound.unused_objects) is_gone[unused] = true;
  std::vector<traced_object> made;
  for (const bound_object& object : bound.objects) {
    traced_object& one = made.emplace_back(traced_object{object.key, {}, {}});
    for (const std::size_t source : object.sources) {
      is_gone[source] = true;
      one.sources.insert(one.sources.end(), objects[source].sources.begin(), objects[source].sources.end());
    }
  }
  for (std::size_t i = 0; i < objects.size(); ++i)
    if (!is_gone[i]) made.push_back(std::move(objects[i]));
  return made;
}

// Adds the tied tensors of a mapping to `made`, in which `between` are the mapping's sources.
void trace_ties(const bound_mapping& bound, const catalog& between, traced_mapping& made) {
  for (const unused_tensor& one : bound.unused) {
    if (!one.same_as) continue;
    const target_elements &tied = made.tensors[one.source], &partner = made.tensors[*one.same_as];
    const auto is_source = [](const target_elements& side) {
      return side.whole && side.values.empty() && side.equals.empty();
    };
    if (is_source(tied) && is_source(partner))
      made.ties.push_back({*tied.whole, *partner.whole});
    else
      made.untraced_tie = fail(errc::unsupported, "a later mapping ties a tensor that an earlier one computes")
                              .with_key(between.tensors[one.source].key)
                              .with_hint("apply the mappings one after another");
  }
}

}  // namespace

result<traced_mapping> traced(const catalog& sources, std::span<const mapping_rules> mappings,
                              const model_sizes& sizes) {
  SHARDMESH_TRY(check_given_sizes(mappings, sizes));
  traced_mapping made{elements_of(sources), {}, {}, {}, {}};
  for (std::size_t i = 0; i < sources.objects.size(); ++i) made.objects.push_back({sources.objects[i].key, {i}, {}});
  for (const mapping_rules& mapping : mappings) {
    const auto through = std::make_shared<list_mapping>();
    catalog& between = through->sources;
    between = catalog_of(made.tensors);
    for (const traced_object& object : made.objects) between.objects.push_back({object.key, {object.key}, {}, 0});
    SHARDMESH_TRY(through->bound, bind_mapping(mapping, between, sizes));
    if (!through->bound.lists.empty()) through->instances = index_instances(through->bound, between);
    made.objects = followed(through, std::move(made.objects));
    trace_ties(through->bound, between, made);
    for (std::string& note : notes_of(through->bound, between)) made.notes.push_back(std::move(note));
    SHARDMESH_TRY(made.tensors, chained(made.tensors, elements_of(through->bound, between)));
  }
  return made;
}

result<catalog> catalog_of(std::span<const held_tensor> sources) {
  catalog made;
  made.tensors.reserve(sources.size());
  std::vector<error> problems;
  for (const held_tensor& source : sources) {
    if (auto done = check_held(source.where); !done) problems.push_back(std::move(done).error().with_key(source.key));
    made.tensors.push_back(entry_of(source.key, source.type, source.where.global_shape()));
  }
  if (!problems.empty()) return fail_all(std::move(problems));
  SHARDMESH_TRY(check_distinct_keys(made, "two source tensors have the same name"));
  return made;
}

}  // namespace shardmesh
