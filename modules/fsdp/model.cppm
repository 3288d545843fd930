// SPDX-License-Identifier: Apache-2.0
// fsdp_model: the units, buffers, and key order of a model as one rank holds it, and its entries under their state-dict
// names. Making state dicts is in save; loading them is in load.
export module shardmesh.fsdp:model;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :unit;

export namespace shardmesh {

/// A tensor that every rank holds whole: a buffer, or a parameter that FSDP ignores.
struct fsdp_tensor {
  std::string fqn;  // components that wrappers insert are ignored
  tensor_view value;
  std::optional<dtype> saved_type{};  // of a buffer under mixed precision: its original dtype, in which it is saved
  bool ignored = false;               // saved by every rank, including ranks that get no parameters
};

/// A model as one rank holds it. It owns no memory. All ranks describe the same units in the same order.
struct fsdp_model {
  std::vector<fsdp_unit> units;
  std::vector<fsdp_tensor> tensors{};
  std::vector<std::string> order{};  // keys in state-dict order, without key_prefix; other keys follow
  std::string key_prefix{};          // prepended to every key, unchanged: "net.model."
};

/// The source of an entry of a model's state dict.
enum class fsdp_entry_kind : std::uint8_t {
  parameter,         // a parameter of a unit
  shared_parameter,  // another name of a parameter
  tensor,            // an element of fsdp_model::tensors
  flat,              // a unit's flat parameter itself
};

/// An entry of a model's state dict.
struct fsdp_entry {
  std::string key;
  fsdp_entry_kind kind = fsdp_entry_kind::parameter;
  std::size_t unit = 0;   // index of the unit, for parameters and flat entries
  std::size_t index = 0;  // index of the parameter in its unit, or of the tensor
  friend bool operator==(const fsdp_entry&, const fsdp_entry&) = default;
};

/// The entries to list: one per name (full and sharded state dicts), one per sharded unit and tensor (local), or both.
enum class fsdp_entries : std::uint8_t { names, flat, all };

/// Returns the entries in key order. A flat entry that `order` does not list comes before the first listed key of its
/// module, as in PyTorch's module order. With `all`, units that share one prefix have no flat entries.
/// \errors errc::duplicate_key, errc::invalid_argument (a group whose size differs from the flat parameter's), each
///         naming the key
/// Cost: O(n log n).
result<std::vector<fsdp_entry>> entries_of(const fsdp_model& model, fsdp_entries which = fsdp_entries::names);

}  // namespace shardmesh

namespace shardmesh::detail {

// The size of the model's communicator. Checks that all groups are over communicators of that size, and that `rank` is
// one of its ranks.
result<std::int32_t> ranks_of(const fsdp_model& model, std::int32_t rank);

}  // namespace shardmesh::detail
