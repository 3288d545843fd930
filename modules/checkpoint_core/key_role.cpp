// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>
module shardmesh.checkpoint_core;

namespace shardmesh {
namespace {

using names = std::span<const std::string_view>;

bool is_one_of(std::string_view part, names known) {
  return std::find(known.begin(), known.end(), part) != known.end();
}

// Splits a key into components; Megatron's "optimizer/shard_0_1" becomes the component "optimizer".
std::vector<std::string_view> components(std::string_view key) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t end = std::min(key.find('.', begin), key.size());
    const std::string_view part = key.substr(begin, end - begin);
    parts.push_back(part.substr(0, part.find('/')));
    begin = end + 1;
  }
  return parts;
}

// Removes a number or a rank: "optimizer_12" becomes "optimizer", and "rng@1" becomes "rng"; other names stay.
std::string_view without_number(std::string_view part) {
  const std::size_t last = part.find_last_not_of("0123456789");
  if (last == std::string_view::npos || last + 1 == part.size()) return part;
  return part[last] == '_' || part[last] == '@' ? part.substr(0, last) : part;
}

// Removes trailing digits: "optimizer_1" and "optimizer2" become "optimizer".
std::string_view without_digits(std::string_view part) {
  const std::size_t last = part.find_last_not_of("0123456789");
  return part.substr(0, last == std::string_view::npos ? 0 : last + (part[last] == '_' ? 0 : 1));
}

bool is_optimizer_name(std::string_view part) {
  constexpr auto known = std::to_array<std::string_view>(
      {"optim", "opt", "optimizer", "optimizers", "optim_state", "optim_states", "opt_state", "opt_states",
       "optimizer_state", "optimizer_states", "optim_state_dict", "optimizer_state_dict", "optimizer_state_dicts",
       "last_optimizer_state"});
  return is_one_of(without_digits(part), known);
}

// True for names that a module could also have. The keys below the name then decide.
bool is_also_a_module_name(std::string_view part) {
  constexpr auto known = std::to_array<std::string_view>({"optim", "opt", "optimizer", "optimizers"});
  return is_one_of(without_digits(part), known);
}

bool is_model_name(std::string_view part) {
  constexpr auto known = std::to_array<std::string_view>(
      {"model", "models", "module", "state_dict", "model_state", "model_states", "model_state_dict"});
  return is_one_of(part, known);
}

// State names that only optimizers use (torch.optim, bitsandbytes, Megatron).
bool is_certain_state_name(std::string_view part) {
  constexpr auto known = std::to_array<std::string_view>(
      {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_avg_diff", "exp_inf", "momentum_buffer", "square_avg",
       "acc_delta", "grad_avg", "mu_product", "step_size", "row_var", "col_var", "master_param", "fp32_param"});
  return is_one_of(part, known);
}

// State names that a module could also use; a "step" beside them shows that they belong to an optimizer.
bool is_possible_state_name(std::string_view part) {
  constexpr auto known = std::to_array<std::string_view>({"sum", "mu", "eta", "ax", "prev", "variance"});
  return is_one_of(part, known);
}

// The fields of a parameter group, in "param_groups".
bool is_group_field(std::string_view part) {
  constexpr auto known = std::to_array<std::string_view>(
      {"param_groups", "params", "param_names", "lr", "initial_lr", "weight_decay", "betas", "momentum", "eps"});
  return is_one_of(part, known);
}

bool is_random_state(std::string_view part) {
  constexpr auto known = std::to_array<std::string_view>(
      {"rng", "rngs", "rng_state", "rng_states", "rng_state_dict", "rng_state_dicts", "cpu_rng_state", "cuda_rng_state",
       "torch_rng_state", "torch_cuda_rng_state", "torch_cuda_rng_state_all", "random_rng_state", "np_rng_state",
       "numpy_rng_state", "rng_tracker_states", "random_state", "random_states", "rank_zero_seed", "seed"});
  return is_one_of(without_number(part), known);
}

bool is_trainer_state(std::string_view part) {
  constexpr auto known = std::to_array<std::string_view>(
      {"lr_scheduler",        "lr_schedulers", "scheduler",   "schedulers",    "opt_param_scheduler",
       "dataloader",          "dataloaders",   "train_state", "trainer_state", "loops",
       "callbacks",           "scaler",        "grad_scaler", "amp_scaler",    "timestamp",
       "rerun_state_machine", "step",          "global_step", "epoch",         "iteration"});
  return is_one_of(without_number(part), known);
}

// Returns the number of leading components that are a trainer's prefix.
std::size_t root_of(const std::vector<std::string_view>& parts) {
  constexpr auto wrappers = std::to_array<std::string_view>({"trainer", "train_state", "app", "checkpoint", "state"});
  std::size_t root = 0;
  while (root + 1 < parts.size()) {
    const std::string_view part = parts[root];
    if (part == "mimo" && root + 2 < parts.size())
      root += 2;
    else if (is_one_of(part, wrappers) || (part != without_number(part) && without_number(part) == "chained"))
      ++root;
    else
      break;
  }
  return root;
}

// True for an entry that only an optimizer can have, below a name that a module could also have.
bool is_entry_of_optimizer(std::string_view key, const std::vector<std::string_view>& parts, std::size_t root) {
  if (key.find('/') != std::string_view::npos) return true;  // Megatron's per-rank objects
  const bool is_weight = parts.back() == "weight" || parts.back() == "bias";
  for (std::size_t i = root + 1; i < parts.size(); ++i)
    if (parts[i] == "param_groups" || is_certain_state_name(parts[i]) ||
        (parts[i] == "state" && parts.size() - i >= 3 && !is_weight))
      return true;
  return false;
}

std::string joined(std::string_view key, const std::vector<std::string_view>& parts, std::size_t count) {
  if (count == 0) return {};
  const std::string_view last = parts[count - 1];
  return std::string(key.substr(0, static_cast<std::size_t>(last.data() - key.data()) + last.size())) + ".";
}

std::string_view parent_of(std::string_view key) {
  const std::size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : key.substr(0, dot);
}

}  // namespace

void key_roles::add(std::string_view key) {
  constexpr auto containers =
      std::to_array<std::string_view>({"model", "module", "state", "state_dict", "model_state", "model_state_dict"});
  const auto parts = components(key);
  has_state_model_ |= parts.size() > 2 && parts[0] == "state" && parts[1] == "model";
  const std::size_t root = root_of(parts);
  has_containers_ |= is_one_of(parts[0], containers) || is_optimizer_name(parts[root]);
  for (std::size_t i = 0; i < parts.size() && !(i > root && is_model_name(parts[root])); ++i)
    if (parts[i] == "param_groups" && is_group_field(parts.back())) {
      optimizers_.insert(joined(key, parts, i));
      has_optimizer_ = true;
    }
  if (is_optimizer_name(parts[root])) {
    const bool is_evident = root + 1 == parts.size() || !is_also_a_module_name(parts[root]);
    if (!is_evident && is_entry_of_optimizer(key, parts, root)) evident_.insert(joined(key, parts, root + 1));
    has_optimizer_ |= is_evident || !evident_.empty();
  }
  if (std::find(parts.begin(), parts.end(), "state") == parts.end() || parts.size() < 3) return;
  const auto [found, is_new] = groups_.try_emplace(std::string(parent_of(key)));
  group& of = found->second;
  const bool was_known = of.is_known();
  const std::string_view name = parts.back();
  of.has_certain_name |= is_certain_state_name(name);
  of.has_possible_name |= is_possible_state_name(name);
  of.has_step |= name == "step";
  const int change = of.is_known() ? (is_new || was_known ? 0 : -1) : (is_new ? 1 : 0);
  if (change == 0) return;
  for (std::size_t i = 0; i + 3 <= parts.size(); ++i)
    if (parts[i] == "state") unknown_groups_[joined(key, parts, i + 1)] += change;
}

bool key_roles::is_optimizer(std::string_view key, const std::vector<std::string_view>& parts, std::size_t root) const {
  if (is_optimizer_name(parts[root]) && (root + 1 == parts.size() || !is_also_a_module_name(parts[root]) ||
                                         evident_.contains(joined(key, parts, root + 1))))
    return true;
  // Modules may have any names, so below a model's name only the components up to that name count.
  const std::size_t end = is_model_name(parts[root]) ? root + 1 : parts.size();
  const auto found = groups_.find(std::string(parent_of(key)));
  const group of = found == groups_.end() ? group{} : found->second;
  bool below_optimizer = false;
  for (std::size_t i = 0; i < end; ++i) {
    if (parts[i] == "param_groups" && (is_group_field(parts.back()) || optimizers_.contains(joined(key, parts, i))))
      return true;
    if (parts[i] == "state" && parts.size() - i >= 3) {
      if (below_optimizer || optimizers_.contains(joined(key, parts, i))) return true;
      const auto unknown = unknown_groups_.find(joined(key, parts, i + 1));
      // State names prove nothing where the structure points to a module.
      const bool is_module =
          has_optimizer_ || end < parts.size() || (unknown != unknown_groups_.end() && unknown->second > 0);
      if (!is_module && (of.has_certain_name || is_certain_state_name(parts.back()))) return true;
      if (!is_module && of.has_step && (of.has_possible_name || (i == 0 && !has_state_model_))) return true;
    }
    below_optimizer |= is_optimizer_name(parts[i]);
  }
  return false;
}

key_role key_roles::role_of(std::string_view key) const {
  const auto parts = components(key);
  const std::size_t root = root_of(parts);
  if (is_optimizer(key, parts, root)) return key_role::optimizer;
  if (is_random_state(parts[root]) || (has_containers_ && is_trainer_state(parts[root]))) return key_role::other;
  if (has_state_model_ && parts[0] == "state" && parts.size() > 1 && parts[1] != "model") return key_role::other;
  return key_role::model;
}

bool is_optimizer_key(std::string_view key) {
  key_roles alone;
  alone.add(key);
  return alone.role_of(key) == key_role::optimizer;
}

}  // namespace shardmesh
