// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

module shardmesh.state_checkpoint;

import shardmesh.checkpoint_core;
import shardmesh.torch_file;

namespace shardmesh {
namespace {

// A nested path keeps the part before its last name.
path where_of(const path& flat, const flat_unit& unit, const std::string& name) {
  const std::string last(flat.back().is_index() ? "" : flat.back().name());
  if (!unit.has_default_prefix || !last.ends_with(flat_parameter_key)) return path{joined_key(unit.prefix, name)};
  path made = flat;
  made.pop_back();
  made.push_back(last.substr(0, last.size() - flat_parameter_key.size()) + name);
  return made;
}

class carved_reader final : public torch_file::archive_forwarding_reader {
 public:
  static result<std::unique_ptr<checkpoint_reader>> make(std::unique_ptr<checkpoint_reader> inner,
                                                         std::span<const flat_unit> units) {
    auto made = std::make_unique<carved_reader>(std::move(inner));
    SHARDMESH_TRY(made->build(units));
    return std::unique_ptr<checkpoint_reader>(std::move(made));
  }
  explicit carved_reader(std::unique_ptr<checkpoint_reader> inner) : archive_forwarding_reader(std::move(inner)) {}

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    SHARDMESH_TRY(auto opened, forwarding_reader::open_chunk(tensor, chunk));
    const piece& from = pieces_[static_cast<std::size_t>(chunk)];
    if (!from.is_carved) return opened;
    auto made = std::make_shared<opened_chunk>(*opened);
    const std::int64_t step = made->tensor.strides.empty() ? 1 : made->tensor.strides[0];
    made->tensor.storage_offset += from.begin * step;
    made->tensor.sizes = from.sizes;
    made->tensor.strides = from.strides;
    for (std::int64_t& stride : made->tensor.strides) stride *= step;
    return std::shared_ptr<const opened_chunk>(std::move(made));
  }

 private:
  // The source of a chunk: the whole inner chunk, or a contiguous run of its elements, seen as a box.
  struct piece {
    bool is_carved = false;
    std::int64_t begin = 0;
    extents sizes, strides;
  };

  result<void> build(std::span<const flat_unit> units) {
    const catalog& stored = inner().contents();
    std::map<std::string_view, const flat_unit*> by_key;
    for (const flat_unit& unit : units) by_key.emplace(unit.key, &unit);
    for (std::size_t t = 0; t < stored.tensors.size(); ++t) {
      const tensor_entry& tensor = stored.tensors[t];
      const auto unit = by_key.find(tensor.key);
      if (unit != by_key.end()) {
        auto carved = add_unit(t, *unit->second);
        if (!carved) return named(std::move(carved).error(), tensor.key);
        by_key.erase(unit);
        continue;
      }
      if (tensor.key == flat_parameter_key || tensor.key.ends_with(fmt::format(".{}", flat_parameter_key)))
        return fail(errc::missing_key, "the flat spec does not say what is in this flat parameter")
            .with_key(tensor.key);
      SHARDMESH_TRY(add_entry(tensor, t));
      for (std::int32_t c = tensor.first_chunk; c < tensor.first_chunk + tensor.chunk_count; ++c)
        add_piece(stored.chunk_box(tensor, c), {static_cast<std::int32_t>(t), c}, {});
    }
    if (!by_key.empty())
      return fail(errc::missing_key, "the flat spec has a unit for a tensor that the checkpoint lacks")
          .with_key(by_key.begin()->first)
          .with_hint(did_you_mean(nearest_key(stored, by_key.begin()->first)));
    return {};
  }

  result<void> add_unit(std::size_t t, const flat_unit& unit) {
    const catalog& stored = inner().contents();
    const tensor_entry& tensor = stored.tensors[t];
    std::vector<parameter_info> parameters = unit.parameters;
    for (parameter_info& p : parameters) p.type = tensor.type;
    SHARDMESH_TRY(const flat_parameter flat, flat_parameter::make(std::move(parameters), unit.shared, unit.layout));
    if (tensor.shape != extents{flat.unsharded_numel()})
      return fail(errc::shape_mismatch, "the parameters of the flat spec do not fill the flat parameter")
          .with_values(
              fmt::format("{} elements, as its {} parameters say", flat.unsharded_numel(), flat.parameters().size()),
              fmt::format("a tensor of sizes {}", to_string(tensor.shape)))
          .with_hint(unit.layout.alignment > 0
                         ? "set \"ranks\" to the number of ranks that saved: padding depends on it"
                         : "");
    for (std::size_t i = 0; i < flat.parameters().size(); ++i)
      SHARDMESH_TRY(add_parameter(t, unit, flat, i, flat.parameters()[i].fqn));
    for (const shared_parameter_info& s : flat.shared())
      SHARDMESH_TRY(add_parameter(t, unit, flat, *flat.find(s.of), s.fqn));
    return {};
  }

  result<void> add_parameter(std::size_t t, const flat_unit& unit, const flat_parameter& flat, std::size_t parameter,
                             const std::string& name) {
    const catalog& stored = inner().contents();
    const tensor_entry& tensor = stored.tensors[t];
    const parameter_info& info = flat.parameters()[parameter];
    tensor_entry made = tensor;
    made.key = joined_key(unit.prefix, name);
    made.where = where_of(tensor.where, unit, name);
    made.shape = info.shape;
    SHARDMESH_TRY(add_entry(std::move(made), t));
    const index_range own{flat.offset(parameter), flat.numel(parameter)};
    for (std::int32_t c = tensor.first_chunk; c < tensor.first_chunk + tensor.chunk_count; ++c) {
      const box held = stored.chunk_box(tensor, c);
      const std::int64_t begin = std::max(own.begin, held.offsets[0]);
      const std::int64_t end = std::min(own.begin + own.size, held.end(0));
      if (begin >= end) continue;
      for (const flat_box& b : boxes_of_range(info.shape, flat.order(parameter), {begin - own.begin, end - begin})) {
        if (pieces_.size() >= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
          return fail(errc::overflow, "the parameters have more chunks than 32 bits can number");
        add_piece(b.where, {static_cast<std::int32_t>(t), c},
                  {true, own.begin + b.begin - held.offsets[0], b.where.sizes, info.strides});
      }
    }
    return {};
  }

  result<void> add_entry(tensor_entry entry, std::size_t origin) {
    const auto [other, is_new] = names_.emplace(entry.key, origin);
    if (!is_new)
      return fail(errc::duplicate_key,
                  fmt::format("two tensors have the same name: one comes from {}, one from {}",
                              inner().contents().tensors[other->second].key, inner().contents().tensors[origin].key))
          .with_key(entry.key);
    add_tensor(std::move(entry), origin);
    return {};
  }
  void add_piece(const box& where, const inner_chunk& from, piece run) {
    add_chunk(where, from);
    pieces_.push_back(std::move(run));
  }
  // Errors in a unit name its flat parameter, since the names inside it mean nothing on their own.
  static error named(error e, const std::string& key) {
    if (e.key == key || e.code == errc::duplicate_key) return e;
    if (!e.key.empty()) e.message = fmt::format("parameter {}: {}", e.key, e.message);
    e.key = key;
    return e;
  }

  std::vector<piece> pieces_;  // of every chunk
  std::map<std::string, std::size_t> names_;
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> carve_flat_parameters(std::unique_ptr<checkpoint_reader> inner,
                                                                 std::span<const flat_unit> units) {
  return carved_reader::make(std::move(inner), units);
}

}  // namespace shardmesh
