// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <plural.hpp>
#include <range/v3/view/zip.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;
import :meant_parameter;

namespace shardmesh {
namespace {

constexpr std::size_t named_keys = 20;  // keys listed in one message
constexpr std::size_t no_rule = static_cast<std::size_t>(-1);

// "a, b, c, ... and 7 more"
std::string listed(const std::vector<std::string_view>& keys) {
  std::string text = fmt::format("{}", fmt::join(std::span(keys).first(std::min(keys.size(), named_keys)), ", "));
  if (keys.size() > named_keys) text += fmt::format(", ... and {} more", keys.size() - named_keys);
  return text;
}

// "KEY (the segments of SG(0,4:2) add up to 6, dimension 0 has size 8)" for placements whose segments do not fit a
// tensor; otherwise empty. Precondition: the tensor has the dimensions, and none is negative.
std::string misfit(const keyed_shape& tensor, std::span<const placement> placements) {
  for (const placement& p : placements) {
    if (p.kind != placement_kind::shard_segments) continue;
    const std::int64_t size = tensor.shape[static_cast<std::size_t>(p.dim)];
    const auto sum = p.segments_end();
    if (sum && *sum == size) continue;
    return fmt::format("{} (the segments of {} add up to {}, dimension {} has size {})", tensor.key, to_string(p),
                       sum ? std::to_string(*sum) : "more than 64 bits hold", p.dim, size);
  }
  return {};
}

class resolver {
 public:
  resolver(std::span<const keyed_shape> tensors, const device_mesh& mesh, std::span<const placement_rule> rules,
           const placement_options& options)
      : tensors_(tensors),
        mesh_rank_(mesh.rank()),
        mesh_size_(mesh.size()),
        rules_(rules),
        options_(options),
        default_(options.default_placements) {
    if (default_.empty()) default_.assign(mesh_rank_, placement::replicate());
  }

  placement_resolution run() {
    check_lengths();
    match();
    report_unused();
    if (options_.optimizer_follows) follow();
    place_all();
    note_replicas();
    if (!made_.ok()) made_.placements.clear();
    return std::move(made_);
  }

 private:
  void check_lengths() {
    const auto check = [&](const std::vector<placement>& placements, const std::string& what) {
      if (placements.size() != mesh_rank_)
        made_.errors.push_back(
            fail(errc::invalid_argument,
                 fmt::format("{} has {} placement{} for a mesh of {} dimension{}", what, placements.size(),
                             placements.size() == 1 ? "" : "s", mesh_rank_, mesh_rank_ == 1 ? "" : "s")));
    };
    for (const placement_rule& rule : rules_) check(rule.placements, fmt::format("rule '{}'", rule.pattern.text()));
    check(default_, "the default");
  }

  void match() {
    rule_of_.assign(tensors_.size(), no_rule);
    used_.assign(rules_.size(), false);
    for (std::size_t t = 0; t < tensors_.size(); ++t)
      for (std::size_t r = 0; r < rules_.size(); ++r) {
        if ((rule_of_[t] != no_rule && used_[r]) || !rules_[r].pattern.matches(tensors_[t].key)) continue;
        used_[r] = true;
        if (rule_of_[t] == no_rule) rule_of_[t] = r;
      }
  }

  void report_unused() {
    if (options_.allow_unused) return;
    std::vector<std::string_view> keys;
    for (const keyed_shape& tensor : tensors_) keys.push_back(tensor.key);
    for (const auto& [rule, is_used] : ranges::views::zip(rules_, used_))
      if (!is_used)
        made_.errors.push_back(
            fail(errc::invalid_argument, fmt::format("rule '{}' matches no tensor", rule.pattern.text()))
                .with_hint(suggestion(rule.pattern, keys) +
                           "patterns match whole keys; pass allow_unused to ignore this"));
  }

  // Finds, for optimizer state without a rule, the tensor whose placements it takes.
  void follow() {
    followed_.assign(tensors_.size(), std::nullopt);
    std::unordered_map<std::string_view, std::vector<std::size_t>> owners;  // candidates, by <p>
    for (std::size_t t = 0; t < tensors_.size(); ++t)
      if (rule_of_[t] == no_rule)
        for (const auto& [name, is_last] : parameter_names(tensors_[t].key)) owners.try_emplace(name);
    if (owners.empty()) return;
    for (const keyed_shape& tensor : tensors_) roles_.add(tensor.key);
    for (std::size_t t = 0; t < tensors_.size(); ++t)
      for (std::string_view suffix = tensors_[t].key;;) {
        if (const auto found = owners.find(suffix); found != owners.end()) found->second.push_back(t);
        const std::size_t dot = suffix.find('.');
        if (dot == std::string_view::npos) break;
        suffix.remove_prefix(dot + 1);
      }
    std::vector<std::string_view> ambiguous;
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      if (rule_of_[t] != no_rule) continue;
      for (const meant_parameter& meant : parameter_names(tensors_[t].key)) {
        const auto candidates = parameters(owners.at(meant.name), meant, t);
        if (candidates.empty()) continue;
        const bool agree = std::all_of(candidates.begin(), candidates.end(),
                                       [&](std::size_t c) { return wanted(c) == wanted(candidates.front()); });
        if (agree)
          followed_[t] = candidates.front();
        else
          ambiguous.push_back(tensors_[t].key);
        break;
      }
    }
    if (!ambiguous.empty())
      made_.notes.push_back(fmt::format("{} optimizer tensor{} could follow several parameters and {} the default: {}",
                                        ambiguous.size(), ambiguous.size() == 1 ? "" : "s",
                                        ambiguous.size() == 1 ? "takes" : "take", listed(ambiguous)));
  }

  // Tensors named <p> with the shape of tensor t: the one whose key is exactly <p>, or else all whose keys end with it.
  std::vector<std::size_t> parameters(const std::vector<std::size_t>& named, const meant_parameter& meant,
                                      std::size_t t) const {
    std::vector<std::size_t> found;
    for (const std::size_t p : named) {
      if (p == t || tensors_[p].shape != tensors_[t].shape) continue;
      // In Megatron's form, `state.w.exp_avg` would mean a parameter `exp_avg`, and all state of that kind ends with
      // this name.
      if (meant.is_last && roles_.role_of(tensors_[p].key) == key_role::optimizer) continue;
      if (tensors_[p].key == meant.name) return {p};
      found.push_back(p);
    }
    return found;
  }

  const std::vector<placement>& wanted(std::size_t t) const {
    return rule_of_[t] == no_rule ? default_ : rules_[rule_of_[t]].placements;
  }

  // The tensors that the placements of one rule do not fit.
  struct findings {
    std::vector<std::string_view> impossible, scalars;  // keys
    std::vector<std::string> misfits;
  };

  void place_all() {
    std::vector<findings> found(rules_.size() + 1);  // by rule; the last one for the default
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const std::size_t source = options_.optimizer_follows && !followed_.empty() && followed_[t] ? *followed_[t] : t;
      findings& of_rule = found[rule_of_[source] == no_rule ? rules_.size() : rule_of_[source]];
      std::vector<placement> placements = wanted(source);
      const auto dims = static_cast<std::int32_t>(tensors_[t].shape.rank());
      const bool shards =
          std::any_of(placements.begin(), placements.end(), [](const placement& p) { return p.is_shard(); });
      if (dims == 0 && shards) {
        of_rule.scalars.push_back(tensors_[t].key);
        for (placement& p : placements)
          if (p.is_shard()) p = placement::replicate();
      }
      bool exists = true;
      for (placement& p : placements) {
        if (!p.is_shard()) continue;
        if (p.dim >= dims || p.dim < -dims)
          exists = false;
        else if (p.dim < 0)
          p.dim += dims;
      }
      if (!exists)
        of_rule.impossible.push_back(tensors_[t].key);
      else if (std::string what = misfit(tensors_[t], placements); !what.empty())
        of_rule.misfits.push_back(std::move(what));
      made_.placements.push_back(std::move(placements));
    }
    for (std::size_t r = 0; r <= rules_.size(); ++r) report_rule(r, found[r]);
  }

  void report_rule(std::size_t rule, const findings& found) {
    const std::string what = rule == rules_.size() ? fmt::format("the default '{}'", to_string(default_))
                                                   : fmt::format("rule '{}={}'", rules_[rule].pattern.text(),
                                                                 to_string(rules_[rule].placements));
    if (!found.impossible.empty())
      made_.errors.push_back(
          fail(errc::invalid_argument,
               fmt::format("{} names a dimension that {} tensor{}: {}", what, found.impossible.size(),
                           found.impossible.size() == 1 ? " lacks" : "s lack", listed(found.impossible))));
    if (!found.misfits.empty()) {
      const std::vector<std::string_view> named(found.misfits.begin(), found.misfits.end());
      made_.errors.push_back(
          fail(errc::invalid_argument, fmt::format("{} has segments that do not fit {}: {}", what,
                                                   detail::counted(named.size(), "tensor"), listed(named)))
              .with_hint("give the size of each tensor that was fused into the dimension"));
    }
    if (!found.scalars.empty())
      made_.notes.push_back(fmt::format("{} 0-d tensor{} of {} {} replicated: {}", found.scalars.size(),
                                        found.scalars.size() == 1 ? "" : "s", what,
                                        found.scalars.size() == 1 ? "is" : "are", listed(found.scalars)));
  }

  // Notes the tensors that the implicit default replicates on every rank.
  void note_replicas() {
    if (!options_.default_placements.empty() || mesh_size_ <= 1) return;
    std::vector<std::string_view> keys;
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const std::size_t source = !followed_.empty() && followed_[t] ? *followed_[t] : t;
      if (rule_of_[source] == no_rule && tensors_[t].shape.rank() > 0) keys.push_back(tensors_[t].key);
    }
    if (!keys.empty())
      made_.notes.push_back(fmt::format("{} no placement rule and {} replicated on all {} ranks: {}",
                                        detail::counted(keys.size(), "tensor matches", "tensors match"),
                                        keys.size() == 1 ? "is" : "are", mesh_size_, listed(keys)));
  }

  std::span<const keyed_shape> tensors_;
  std::size_t mesh_rank_;
  std::int64_t mesh_size_;
  std::span<const placement_rule> rules_;
  const placement_options& options_;
  std::vector<placement> default_;
  std::vector<std::size_t> rule_of_;
  std::vector<bool> used_;
  std::vector<std::optional<std::size_t>> followed_;
  key_roles roles_;
  placement_resolution made_;
};

}  // namespace

placement_resolution resolve_placements(std::span<const keyed_shape> tensors, const device_mesh& mesh,
                                        std::span<const placement_rule> rules, const placement_options& options) {
  return resolver(tensors, mesh, rules, options).run();
}

result<layout> stored_layout(const device_mesh& mesh, std::vector<placement> placements, const extents& shape) {
  for (const placement& p : placements)
    if (p.kind == placement_kind::partial)
      return fail(errc::unsupported, "a checkpoint holds values, not the terms of a Partial");
  return layout::make(mesh, std::move(placements), shape);
}

}  // namespace shardmesh
