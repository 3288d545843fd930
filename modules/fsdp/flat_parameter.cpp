// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.fsdp;

namespace shardmesh {

struct flat_parameter::description {
  std::vector<parameter_info> parameters;
  std::vector<shared_parameter_info> shared;
  flat_parameter_options options;
  std::vector<extents> orders;
  std::vector<flat_segment> segments;
  std::vector<std::size_t> segment_of;  // for each parameter, its index in `segments`
  std::map<std::string, std::size_t, std::less<>> by_name;
  std::int64_t unsharded_numel = 0, sharded_numel = 0, padded_numel = 0;
};

namespace {

// The value that PyTorch writes into alignment padding. The padding at the end of the last shards is 0.
constexpr int alignment_padding_value = 42;

result<std::int64_t> numel_of(const parameter_info& p) {
  if (p.strides.rank() != p.shape.rank())
    return fail(errc::shape_mismatch, "a parameter needs as many strides as sizes")
        .with_key(p.fqn)
        .with_values(to_string(p.shape), to_string(p.strides));
  if (auto valid = check_shape(p.shape); !valid) return std::move(valid).error().with_key(p.fqn);
  return *checked_volume(p.shape);
}

result<void> check_options(const flat_parameter_options& options) {
  if (options.group_size < 1)
    return fail(errc::invalid_argument, "the group of a flat parameter must have at least one rank")
        .with_values("at least 1", std::to_string(options.group_size));
  if (options.alignment < 0)
    return fail(errc::invalid_argument, "the alignment of a flat parameter cannot be negative")
        .with_values("at least 0 elements", std::to_string(options.alignment));
  return {};
}

using index_by_name = std::map<std::string, std::size_t, std::less<>>;

// Gives each shared parameter the index of the one that it refers to.
result<void> add_shared(std::span<const shared_parameter_info> shared, index_by_name& by_name) {
  for (const shared_parameter_info& s : shared) {
    const auto stored = by_name.find(s.of);
    if (stored == by_name.end())
      return fail(errc::missing_key, "a shared parameter refers to one that the unit lacks")
          .with_key(s.fqn)
          .with_values("a parameter of the unit", s.of);
    if (!by_name.emplace(s.fqn, stored->second).second)
      return fail(errc::duplicate_key, "two parameters of a flat parameter have the same name").with_key(s.fqn);
  }
  return {};
}

error too_large(std::string_view key) {
  return fail(errc::overflow, "the elements of the flat parameter do not fit in 64 bits").with_key(key);
}

}  // namespace

std::int64_t alignment_of(dtype type) {
  constexpr std::int64_t alignment_bits = 128;
  return bits(type) == 0 ? 0 : alignment_bits / bits(type);
}

flat_parameter::flat_parameter() {
  static const auto empty = std::make_shared<const description>();
  description_ = empty;
}

result<flat_parameter> flat_parameter::make(std::vector<parameter_info> parameters,
                                            std::vector<shared_parameter_info> shared,
                                            const flat_parameter_options& options) {
  SHARDMESH_TRY(check_options(options));
  auto made = std::make_shared<description>();
  std::int64_t total = 0;
  const auto append = [&](std::int64_t numel, std::optional<std::size_t> parameter) {
    const auto end = checked_add(total, numel);
    if (!end) return false;
    made->segments.push_back({total, numel, parameter});
    total = *end;
    return true;
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameter_info& p = parameters[i];
    if (p.strides.empty()) p.strides = contiguous_strides(p.shape);
    if (p.type != parameters[0].type)
      return fail(errc::dtype_mismatch, "the parameters of a flat parameter must have the same dtype")
          .with_key(p.fqn)
          .with_values(std::string(name(parameters[0].type)), std::string(name(p.type)));
    if (bits(p.type) == 0 || bits(p.type) % 8 != 0)
      return fail(errc::unsupported, "the elements of a flat parameter must be whole bytes")
          .with_key(p.fqn)
          .with_values("a dtype of whole bytes", std::string(name(p.type)));
    SHARDMESH_TRY(const std::int64_t numel, numel_of(p));
    const auto order = memory_order(p.shape, p.strides);
    if (!order)
      return fail(errc::unsupported, "a parameter of a flat parameter must be dense in memory")
          .with_key(p.fqn)
          .with_values(fmt::format("strides like {}", to_string(contiguous_strides(p.shape))), to_string(p.strides))
          .with_hint("flatten a contiguous copy of it");
    if (!made->by_name.emplace(p.fqn, i).second)
      return fail(errc::duplicate_key, "two parameters of a flat parameter have the same name").with_key(p.fqn);
    const std::int64_t beyond = options.alignment > 0 ? total % options.alignment : 0;
    if (beyond != 0 && !append(options.alignment - beyond, std::nullopt)) return too_large(p.fqn);
    made->segment_of.push_back(made->segments.size());
    if (!append(numel, i)) return too_large(p.fqn);
    made->orders.push_back(*order);
  }
  SHARDMESH_TRY(add_shared(shared, made->by_name));
  // With alignment, PyTorch also pads the end, in the same way, so that the group size divides the whole.
  const std::int64_t group = options.group_size;
  if (options.alignment > 0 && total % group != 0 && !append(group - total % group, std::nullopt)) return too_large({});
  made->unsharded_numel = total;
  made->sharded_numel = options.sharded ? total / group + (total % group != 0 ? 1 : 0) : total;
  const auto padded = checked_multiply(made->sharded_numel, options.sharded ? group : 1);
  if (!padded) return too_large({});
  made->padded_numel = *padded;
  made->parameters = std::move(parameters);
  made->shared = std::move(shared);
  made->options = options;
  flat_parameter flat;
  flat.description_ = std::move(made);
  return flat;
}

std::span<const parameter_info> flat_parameter::parameters() const {
  return description_->parameters;
}
std::span<const shared_parameter_info> flat_parameter::shared() const {
  return description_->shared;
}
std::int32_t flat_parameter::group_size() const {
  return description_->options.group_size;
}
std::int64_t flat_parameter::alignment() const {
  return description_->options.alignment;
}
bool flat_parameter::is_sharded() const {
  return description_->options.sharded;
}
dtype flat_parameter::type() const {
  return description_->parameters.empty() ? dtype::undefined : description_->parameters[0].type;
}

std::optional<std::size_t> flat_parameter::find(std::string_view fqn) const {
  const auto found = description_->by_name.find(fqn);
  if (found == description_->by_name.end()) return std::nullopt;
  return found->second;
}
std::int64_t flat_parameter::numel(std::size_t parameter) const {
  return description_->segments[description_->segment_of[parameter]].numel;
}
std::int64_t flat_parameter::offset(std::size_t parameter) const {
  return description_->segments[description_->segment_of[parameter]].offset;
}
const extents& flat_parameter::order(std::size_t parameter) const {
  return description_->orders[parameter];
}
bool flat_parameter::is_contiguous(std::size_t parameter) const {
  const parameter_info& p = description_->parameters[parameter];
  return shardmesh::is_contiguous(p.shape, p.strides) && (p.strides.empty() || p.strides[p.strides.rank() - 1] == 1);
}
std::span<const flat_segment> flat_parameter::segments() const {
  return description_->segments;
}

std::int64_t flat_parameter::unsharded_numel() const {
  return description_->unsharded_numel;
}
std::int64_t flat_parameter::padded_numel() const {
  return description_->padded_numel;
}
std::int64_t flat_parameter::sharded_numel() const {
  return description_->sharded_numel;
}

index_range flat_parameter::shard_range(std::int32_t rank) const {
  if (!is_sharded()) return {0, unsharded_numel()};
  return split_rule::torch_chunk().part(unsharded_numel(), group_size(), rank);
}
std::int64_t flat_parameter::shard_numel_padded(std::int32_t rank) const {
  return sharded_numel() - shard_range(rank).size;
}

shard_parameter_info flat_parameter::shard_info(std::int32_t rank, std::size_t parameter) const {
  // As in PyTorch, first and last elements are compared. An empty parameter is therefore in the shard that has elements
  // on both sides of its place. At a border between shards, it is in none.
  const std::int64_t begin = is_sharded() ? sharded_numel() * rank : 0, last = begin + sharded_numel() - 1;
  const std::int64_t first_element = offset(parameter), last_element = first_element + numel(parameter) - 1;
  if (begin > last || begin > last_element || last < first_element) return {};
  shard_parameter_info info{.in_shard = true};
  info.intra_begin = std::max<std::int64_t>(begin - first_element, 0);
  info.intra_end = std::min(last_element, last) - first_element;
  info.offset_in_shard = std::max<std::int64_t>(first_element - begin, 0);
  info.numel_in_shard = info.intra_end - info.intra_begin + 1;
  return info;
}

flat_shard_metadata flat_parameter::shard_metadata(std::int32_t rank) const {
  flat_shard_metadata metadata;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    const shard_parameter_info info = shard_info(rank, i);
    if (!info.in_shard) continue;
    const parameter_info& p = parameters()[i];
    metadata.names.push_back(p.fqn);
    metadata.shapes.push_back(p.shape);
    metadata.strides.push_back(p.strides);
    metadata.contiguous.push_back(is_contiguous(i));
    metadata.numels.push_back(numel(i));
    metadata.offsets.emplace_back(info.intra_begin, info.intra_end);
  }
  return metadata;
}

result<void> flat_parameter::fill_padding(std::int32_t rank, const tensor_view& shard) const {
  const extents expected{sharded_numel()};
  if (shard.sizes != expected)
    return fail(errc::shape_mismatch, "the flat shard has another size")
        .with_rank(rank)
        .with_values(to_string(expected), to_string(shard.sizes));
  if (!parameters().empty() && shard.type != type())
    return fail(errc::dtype_mismatch, "the flat shard has another dtype")
        .with_rank(rank)
        .with_values(std::string(name(type())), std::string(name(shard.type)));
  if (shard.where.type != device_type::cpu)
    return fail(errc::unsupported, "padding can only be written in host memory")
        .with_rank(rank)
        .with_values("cpu", to_string(shard.where));
  const auto fill = [&](std::int64_t begin, std::int64_t end, std::int32_t value) -> result<void> {
    if (begin >= end) return {};
    const const_tensor_view constant{reinterpret_cast<const std::byte*>(&value), dtype::int32, {}, {end - begin}, {0}};
    return copy_between(subview(shard, {{begin}, {end - begin}}), constant);
  };
  const index_range held = shard_range(rank);
  for (const flat_segment& s : segments()) {
    if (!s.is_padding()) continue;
    const std::int64_t begin = std::max(s.offset, held.begin),
                       end = std::min(s.offset + s.numel, held.begin + held.size);
    SHARDMESH_TRY(fill(begin - held.begin, end - held.begin, alignment_padding_value));
  }
  return fill(held.size, sharded_numel(), 0);
}

bool operator==(const flat_parameter& a, const flat_parameter& b) {
  const auto same_options = [](const flat_parameter_options& x, const flat_parameter_options& y) {
    return x.group_size == y.group_size && x.alignment == y.alignment && x.sharded == y.sharded;
  };
  return a.description_ == b.description_ || (a.description_->parameters == b.description_->parameters &&
                                              a.description_->shared == b.description_->shared &&
                                              same_options(a.description_->options, b.description_->options));
}

}  // namespace shardmesh
