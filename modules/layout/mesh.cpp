// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/take.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>

#include "parse.hpp"
module shardmesh.layout;

namespace shardmesh {
namespace views = ranges::views;

// An explicit numbering and its inverse.
struct device_mesh::numbering {
  std::vector<std::int32_t> ranks;                               // by position
  std::vector<std::pair<std::int32_t, std::int64_t>> positions;  // (rank, position), sorted
};

namespace {

error bad_mesh(std::string message) {
  return fail(errc::invalid_argument, std::move(message)).with_hint("write a mesh as 2,3 or dp=2,tp=3");
}

std::vector<std::string_view> split_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t comma = text.find(',');
    parts.push_back(parse::trim(text.substr(0, comma)));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

result<void> check_names(const std::vector<std::string>& names) {
  for (const auto& [d, name] : views::enumerate(names)) {
    if (name.empty()) return bad_mesh(fmt::format("mesh dimension {} has an empty name", d));
    for (const auto& [e, before] : views::enumerate(names | views::take(d)))
      if (before == name) return bad_mesh(fmt::format("mesh dimensions {} and {} are both named '{}'", e, d, name));
  }
  return {};
}

error refused_mesh(const layout_problem& problem, std::span<const std::int64_t> sizes) {
  if (problem.fault == layout_fault::too_many_mesh_dimensions)
    return fail(errc::rank_too_large,
                fmt::format("a mesh has {} dimensions, but at most {} are supported", sizes.size(), max_rank));
  if (problem.fault == layout_fault::empty_mesh_dimension)
    return bad_mesh(
        fmt::format("mesh dimension {} has size {}, but must have at least 1", problem.at, sizes[problem.at]));
  return fail(errc::overflow, "the mesh has more than 2147483647 ranks");
}

}  // namespace

result<device_mesh> device_mesh::make(std::span<const std::int64_t> sizes, std::vector<std::string> names,
                                      std::vector<std::int32_t> ranks) {
  if (const auto problem = find_mesh_problem(sizes)) return refused_mesh(problem, sizes);
  if (!names.empty() && names.size() != sizes.size())
    return bad_mesh(fmt::format("the mesh has {}, but {} given", detail::counted(sizes.size(), "dimension"),
                                detail::counted(names.size(), "name is", "names are")));
  SHARDMESH_TRY(check_names(names));

  device_mesh mesh;
  mesh.sizes_ = extents(sizes);
  mesh.size_ = box::whole(mesh.sizes_).volume();
  if (!names.empty()) mesh.names_ = std::make_shared<const std::vector<std::string>>(std::move(names));
  if (ranks.empty()) return mesh;

  if (static_cast<std::int64_t>(ranks.size()) != mesh.size_)
    return bad_mesh(fmt::format("the mesh has {}, but {} given", detail::counted(mesh.size_, "position"),
                                detail::counted(ranks.size(), "rank is", "ranks are")));
  auto table = std::make_shared<numbering>();
  for (const auto& [i, rank] : views::enumerate(ranks)) {
    if (rank < 0 || rank == std::numeric_limits<std::int32_t>::max())
      return bad_mesh(fmt::format("the mesh has an invalid rank, {}, at position {}", rank, i));
    table->positions.emplace_back(rank, static_cast<std::int64_t>(i));
  }
  std::ranges::sort(table->positions);
  const auto twice = std::ranges::adjacent_find(table->positions, {}, &std::pair<std::int32_t, std::int64_t>::first);
  if (twice != table->positions.end()) return bad_mesh(fmt::format("rank {} is in the mesh twice", twice->first));
  table->ranks = std::move(ranks);
  const bool in_order =
      table->positions.back().first == mesh.size_ - 1 && std::is_sorted(table->ranks.begin(), table->ranks.end());
  if (!in_order) mesh.numbering_ = std::move(table);
  return mesh;
}

std::span<const std::string> device_mesh::names() const {
  if (!names_) return {};
  return *names_;
}

std::optional<std::size_t> device_mesh::dimension(std::string_view name) const {
  const auto all = names();
  const auto found = std::find(all.begin(), all.end(), name);
  if (found == all.end()) return std::nullopt;
  return static_cast<std::size_t>(found - all.begin());
}

std::int32_t device_mesh::rank_limit() const {
  return numbering_ ? numbering_->positions.back().first + 1 : static_cast<std::int32_t>(size_);
}

std::int32_t device_mesh::rank_at(const extents& coordinate) const {
  std::int64_t position = 0;
  for (std::size_t d = 0; d < sizes_.rank(); ++d) position = position * sizes_[d] + coordinate[d];
  return rank_of_position(position);
}

std::int32_t device_mesh::rank_of_position(std::int64_t position) const {
  return numbering_ ? numbering_->ranks[static_cast<std::size_t>(position)] : static_cast<std::int32_t>(position);
}

std::optional<extents> device_mesh::coordinate_of(std::int32_t rank) const {
  std::int64_t position = rank;
  if (numbering_) {
    const auto& table = numbering_->positions;
    const auto found = std::lower_bound(table.begin(), table.end(), std::pair{rank, std::int64_t{0}});
    if (found == table.end() || found->first != rank) return std::nullopt;
    position = found->second;
  }
  if (position < 0 || position >= size_) return std::nullopt;
  extents coordinate = extents::filled(sizes_.rank(), 0);
  for (std::size_t d = sizes_.rank(); d-- > 0; position /= sizes_[d]) coordinate[d] = position % sizes_[d];
  return coordinate;
}

bool operator==(const device_mesh& a, const device_mesh& b) {
  const auto same = [](const auto& x, const auto& y) { return std::equal(x.begin(), x.end(), y.begin(), y.end()); };
  const std::vector<std::int32_t> none;
  return a.sizes_ == b.sizes_ && same(a.names(), b.names()) &&
         (a.numbering_ ? a.numbering_->ranks : none) == (b.numbering_ ? b.numbering_->ranks : none);
}

std::string to_string(const device_mesh& mesh) {
  std::string text;
  for (std::size_t d = 0; d < mesh.rank(); ++d)
    text +=
        fmt::format("{}{}{}", d == 0 ? "" : ",", mesh.names().empty() ? "" : mesh.names()[d] + "=", mesh.sizes()[d]);
  return text;
}

result<device_mesh> parse_mesh(std::string_view text) {
  if (parse::trim(text).empty()) return bad_mesh("the mesh is empty");
  std::vector<std::int64_t> sizes;
  std::vector<std::string> names;
  const auto parts = split_commas(text);
  for (const std::string_view part : parts) {
    const std::size_t equals = part.rfind('=');
    const bool named = equals != std::string_view::npos;
    if (named) names.emplace_back(parse::trim(part.substr(0, equals)));
    const std::string_view number = named ? parse::trim(part.substr(equals + 1)) : part;
    const auto size = parse::integer(number);
    if (!size && parse::is_digits(number))
      return fail(errc::overflow, fmt::format("mesh size {} does not fit in 64 bits", number));
    if (!size) return bad_mesh(fmt::format("'{}' is not the size of a mesh dimension", part));
    if (*size < 1) return bad_mesh(fmt::format("mesh size '{}' must be at least 1", part));
    sizes.push_back(*size);
  }
  if (!names.empty() && names.size() != sizes.size()) return bad_mesh("name all mesh dimensions or none");
  return device_mesh::make(sizes, std::move(names));
}

result<extents> parse_shape(std::string_view text) {
  const std::string_view whole = text = parse::trim(text);
  const auto bad = [&](std::string_view why) {
    return fail(errc::invalid_argument, fmt::format("'{}' is not a shape: {}", whole, why))
        .with_hint("write a shape as 10,7, and a scalar's as []");
  };
  if (text == "scalar") return extents{};
  if (text.empty()) return bad("it is empty");
  const bool bracketed = text.front() == '[' || text.front() == '(';
  if (bracketed) {
    if (text.size() < 2 || text.back() != (text.front() == '[' ? ']' : ')')) return bad("the bracket is not closed");
    text = parse::trim(text.substr(1, text.size() - 2));
    if (text.empty()) return extents{};
    if (text.back() == ',') text.remove_suffix(1);  // Python's (10,)
  }
  extents shape;
  for (const std::string_view part : split_commas(text)) {
    const auto size = parse::integer(part);
    if (!size && parse::is_digits(part))
      return fail(errc::overflow, fmt::format("size {} of shape {} does not fit in 64 bits", part, whole));
    if (!size) return bad(fmt::format("'{}' is not a number", part));
    if (*size < 0) return bad(fmt::format("size {} is negative", *size));
    if (shape.rank() == max_rank)
      return fail(errc::rank_too_large, fmt::format("shape {} has more than {} dimensions", whole, max_rank));
    shape.push_back(*size);
  }
  SHARDMESH_TRY(check_shape(shape));
  return shape;
}

result<void> check_shape(const extents& shape) {
  const auto problem = find_shape_problem(shape);
  if (problem.fault == layout_fault::negative_size)
    return fail(errc::invalid_argument, fmt::format("shape {} has a negative size", to_string(shape)));
  if (problem)
    return fail(errc::overflow, fmt::format("the volume of shape {} does not fit in 64 bits", to_string(shape)));
  return {};
}

}  // namespace shardmesh
