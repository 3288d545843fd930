// SPDX-License-Identifier: Apache-2.0
// fsdp_model: the units, buffers and key order of a model as one rank holds it, and its entries under the names that
// state dicts use. Not here: making state dicts (save), taking them (load).
export module shardmesh.fsdp:model;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :unit;

export namespace shardmesh {

/// A tensor that every rank holds whole: a buffer, or a parameter that FSDP ignores.
struct fsdp_tensor {
  std::string fqn;  // names of wrappers in it do not count
  tensor_view value;
  std::optional<dtype> saved_type{};  // of a buffer under mixed precision: its own dtype, in which it is saved
  bool ignored = false;               // saved by every rank, also by those that get no parameters
};

/// A model as one rank holds it. Does not own memory. All ranks describe the same units in the same order.
struct fsdp_model {
  std::vector<fsdp_unit> units;
  std::vector<fsdp_tensor> tensors{};
  std::vector<std::string> order{};  // keys in the order of the state dict, without key_prefix; others follow
  std::string key_prefix{};          // in front of every key as it is: "net.model."
};

/// What an entry of a model's state dict stands for.
enum class fsdp_entry_kind : std::uint8_t {
  parameter,         // of a unit
  shared_parameter,  // another name of one
  tensor,            // fsdp_model::tensors
  flat,              // a unit's flat parameter itself
};

/// An entry of a model's state dict.
struct fsdp_entry {
  std::string key;
  fsdp_entry_kind kind = fsdp_entry_kind::parameter;
  std::size_t unit = 0;   // of parameters and flat
  std::size_t index = 0;  // of the parameter in its unit, or of the tensor
  friend bool operator==(const fsdp_entry&, const fsdp_entry&) = default;
};

/// Which entries a list has: one per name (full and sharded state dicts), or one per sharded unit and tensor (local).
enum class fsdp_entries : std::uint8_t { names, flat, all };

/// The entries in key order. A flat entry that `order` does not list comes before the first listed key of its module,
/// as in PyTorch's module order. With `all`, units that share one prefix have no flat entries.
/// \errors errc::duplicate_key naming the key; errc::shape_mismatch (a shard of another size), errc::invalid_argument
///         (a group of another size), each naming the key and the rank
/// Cost: O(n log n).
result<std::vector<fsdp_entry>> entries_of(const fsdp_model& model, fsdp_entries which = fsdp_entries::names);

}  // namespace shardmesh

namespace shardmesh::detail {

// The ranks of the model's communicator, of which `rank` is one; all groups are over the same.
result<std::int32_t> ranks_of(const fsdp_model& model, std::int32_t rank);

}  // namespace shardmesh::detail
