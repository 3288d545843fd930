// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :python_keys;
import :state_pickle;
import :tensor_record;

namespace shardmesh::torch_file {
namespace {

class state_pickler {
 public:
  explicit state_pickler(std::span<const state_entry> entries) : entries_(entries) {}

  result<state_pickle> run() && {
    SHARDMESH_TRY(const unflattened state, tree_of_entries());
    if (state.spec.nodes().back().kind == node_kind::leaf)
      SHARDMESH_TRY(write_leaf(state.leaf_order.front()));
    else
      SHARDMESH_TRY(write(state));
    made_.data_pkl = std::move(out_).finish();
    return std::move(made_);
  }

 private:
  result<unflattened> tree_of_entries() const {
    std::vector<path> paths;
    paths.reserve(entries_.size());
    for (const state_entry& entry : entries_) paths.push_back(entry.where);
    // Lists of a real state dict lack few positions, but an index in an untrusted path can be any number.
    const auto holes = static_cast<std::int64_t>(paths.size()) + 1024;
    return unflatten(paths, {.max_holes = holes});
  }

  result<void> write(const unflattened& state) {
    const auto nodes = state.spec.nodes();
    struct open_container {
      std::vector<std::size_t> children;
      bool is_mapping;
      std::size_t next = 0;
    };
    std::vector<open_container> open;
    std::size_t leaf = 0;
    const auto begin = [&](std::size_t node) {
      const bool is_mapping = nodes[node].kind == node_kind::mapping;
      is_mapping ? out_.begin_dict() : out_.begin_list();
      open.push_back({state.spec.children(node), is_mapping});
    };
    begin(nodes.size() - 1);
    while (!open.empty()) {
      open_container& c = open.back();
      if (c.next == c.children.size()) {
        c.is_mapping ? out_.end_dict() : out_.end_list();
        open.pop_back();
        continue;
      }
      const std::size_t node = c.children[c.next++];
      if (c.is_mapping) SHARDMESH_TRY(write_key(state.spec.keys()[node]));
      if (nodes[node].kind == node_kind::leaf)
        SHARDMESH_TRY(write_leaf(state.leaf_order[leaf++]));
      else
        begin(node);
    }
    return {};
  }

  result<void> write_key(const path_key& key) {
    if (key.is_python()) {
      const std::string_view pickled = key.pickled();
      SHARDMESH_TRY(auto parsed, pickle::graph::parse(std::as_bytes(std::span(pickled.data(), pickled.size()))));
      keys_.push_back(std::move(parsed));
      return out_.value(keys_.back().root(), 4 * most_key_bytes);
    }
    if (key.is_index())
      out_.integer(key.index());
    else
      key.is_integer() ? out_.integer(key.integer()) : out_.text(key.name());
    return {};
  }

  result<void> write_leaf(std::size_t entry) {
    if (entry == unflattened::hole) {
      out_.none();
      return {};
    }
    auto done = entries_[entry].archive ? write_archive(entries_[entry].archive) : write_tensor(entry);
    if (!done) return std::move(done).error().with_key(entries_[entry].key);
    return {};
  }

  result<void> write_tensor(std::size_t entry) {
    const dtype type = entries_[entry].type;
    const extents& sizes = entries_[entry].sizes;
    if (auto can = tensor_pickle(type, sizes); !can) return std::move(can).error();
    write_tensor_record(out_, type, sizes, contiguous_strides(sizes), made_.storages.size());
    made_.storages.push_back({entry, {}, *size_bytes(type, *checked_volume(sizes))});
    return {};
  }

  // Writes the value in an archive. Its storages are renumbered for this file.
  result<void> write_archive(const std::function<result<std::vector<std::byte>>()>& make) {
    SHARDMESH_TRY(const std::vector<std::byte> bytes, make());
    const memory_source source(bytes, "an object");
    SHARDMESH_TRY(const torch_file::item& item, keep(item::open(source)));
    if (item.byte_order() != std::endian::little && !item.storages().empty())
      return fail(errc::unsupported, "its tensors are of another byte order");
    std::map<std::string, std::size_t, std::less<>> numbers;
    for (const torch_file::storage& storage : item.storages()) {
      SHARDMESH_TRY(std::vector<std::byte> content, read_storage(source, storage, storage.size_bytes));
      numbers.emplace(storage.key, made_.storages.size());
      const auto size = static_cast<std::int64_t>(content.size());
      made_.storages.push_back({std::nullopt, std::move(content), size});
    }
    std::optional<error> problem;
    const auto write_id = [&](const pickle::value& id) {
      if (auto done = write_storage_id(id, numbers); !done && !problem) problem = std::move(done).error();
    };
    SHARDMESH_TRY(out_.value(item.root(), most_bytes, write_id));
    if (problem) return *std::move(problem);
    return {};
  }

  // Writes ("storage", class, key, location, count) with this file's key.
  result<void> write_storage_id(const pickle::value& id,
                                const std::map<std::string, std::size_t, std::less<>>& numbers) {
    const pickle::items parts = id.items();
    const auto key = parts.size() == 5 ? parts[2].text() : std::nullopt;
    const auto found = key ? numbers.find(*key) : numbers.end();
    if (found == numbers.end() || parts[0].text() != "storage") {
      out_.none();
      return fail(errc::unsupported, "refers to something that is not one of its storages");
    }
    out_.begin_tuple();
    out_.text("storage");
    SHARDMESH_TRY(out_.value(parts[1], most_bytes));
    out_.text(std::to_string(found->second));
    for (const std::size_t i : {std::size_t{3}, std::size_t{4}}) SHARDMESH_TRY(out_.value(parts[i], most_bytes));
    out_.end_tuple();
    return {};
  }

  // The writer identifies values by their address in memory, so all items stay there until it is finished.
  result<std::reference_wrapper<const torch_file::item>> keep(result<torch_file::item> opened) {
    if (!opened) return std::move(opened).error();
    return std::cref(*kept_.emplace_back(std::make_unique<torch_file::item>(*std::move(opened))));
  }

  static constexpr std::size_t most_bytes = std::size_t{1} << 32;
  std::span<const state_entry> entries_;
  std::vector<pickle::graph> keys_;  // kept because out_ identifies what it wrote by address
  pickle::writer out_{2};
  state_pickle made_;
  std::vector<std::unique_ptr<torch_file::item>> kept_;
};

}  // namespace

result<state_pickle> pickle_of_state(std::span<const state_entry> entries) {
  return state_pickler(entries).run();
}

}  // namespace shardmesh::torch_file
