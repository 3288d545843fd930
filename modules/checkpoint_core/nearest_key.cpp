// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint_core;

namespace shardmesh {
namespace {

constexpr std::size_t most_edits = 8;

// Rows of the table of edits. They are reused from key to key.
struct edit_rows {
  std::vector<std::size_t> before, above, row;  // of i - 2, i - 1, and i letters
};

// Returns the number of edits from `a` to `b`, or `limit + 1` when there are more than `limit`: the optimal string
// alignment distance. Computes only the band of its table that can stay within the limit.
std::size_t edits(std::string_view a, std::string_view b, std::size_t limit, edit_rows& rows) {
  const auto [a_first, b_first] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  a.remove_prefix(static_cast<std::size_t>(a_first - a.begin()));
  b.remove_prefix(static_cast<std::size_t>(b_first - b.begin()));
  const auto [a_last, b_last] = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  a.remove_suffix(static_cast<std::size_t>(a_last - a.rbegin()));
  b.remove_suffix(static_cast<std::size_t>(b_last - b.rbegin()));
  const std::size_t none = limit + 1;
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) > limit) return none;
  auto& [before, above, row] = rows;
  for (std::vector<std::size_t>* one : {&before, &above, &row}) one->assign(b.size() + 1, none);
  for (std::size_t j = 0; j <= std::min(b.size(), limit); ++j) row[j] = j;
  std::size_t above_least = 0;  // of the previous row, which a swap of two letters skips
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    const std::size_t first = i > limit ? i - limit : 1, last = std::min(b.size(), i + limit);
    // The entries beside the band hold numbers of an earlier row.
    row[first - 1] = first == 1 && i <= limit ? i : none;
    if (last < b.size()) row[last + 1] = none;
    std::size_t least = row[first - 1];
    for (std::size_t j = first; j <= last; ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U), none});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
      least = std::min(least, row[j]);
    }
    if (least == none && above_least == none) return none;
    above_least = least;
  }
  return row[b.size()];
}

// True when `outer` is `inner` behind a prefix that ends with a dot.
bool is_prefixed(std::string_view outer, std::string_view inner) {
  return !inner.empty() && outer.size() > inner.size() && outer.ends_with(inner) &&
         outer[outer.size() - inner.size() - 1] == '.';
}

}  // namespace

std::string_view name(entry_kind kind) {
  return kind == entry_kind::tensor ? "tensor" : "object";
}

std::optional<std::string_view> nearest_key(std::span<const std::string_view> keys, std::string_view wanted) {
  std::optional<std::string_view> near, longer, shorter;
  std::size_t limit = wanted.size() > 1 ? std::min(most_edits, (wanted.size() + 3) / 4) : 0;
  edit_rows rows;
  for (const std::string_view key : keys) {
    const std::size_t found = limit > 0 || key == wanted ? edits(wanted, key, limit, rows) : limit + 1;
    if (found == 0) return key;
    if (found <= limit) {
      near = key;
      limit = found - 1;
    }
    if (is_prefixed(key, wanted) && (!longer || key.size() < longer->size())) longer = key;
    if (is_prefixed(wanted, key) && (!shorter || key.size() > shorter->size())) shorter = key;
  }
  return near ? near : longer ? longer : shorter;
}

std::optional<std::string_view> nearest_key(const catalog& contents, std::string_view wanted) {
  std::vector<std::string_view> keys;
  keys.reserve(contents.tensors.size() + contents.objects.size());
  for (const tensor_entry& tensor : contents.tensors) keys.push_back(tensor.key);
  for (const object_entry& object : contents.objects) keys.push_back(object.key);
  return nearest_key(keys, wanted);
}

std::string did_you_mean(const std::optional<std::string_view>& nearest) {
  return nearest ? fmt::format("did you mean {}?", *nearest) : std::string();
}

error no_such_entry(const checkpoint_reader& reader, std::string_view key, entry_kind wanted, bool suggests) {
  const catalog& contents = reader.contents();
  const bool is_other_kind =
      wanted == entry_kind::tensor ? contents.find_object(key) != nullptr : contents.find(key) != nullptr;
  error made = is_other_kind
                   ? fail(errc::dtype_mismatch, fmt::format("{} {} is requested, but the entry is of the other kind",
                                                            wanted == entry_kind::tensor ? "a" : "an", name(wanted)))
                   : fail(errc::missing_key, fmt::format("the checkpoint has no such {}", name(wanted)));
  if (!is_other_kind && suggests) made.hint = did_you_mean(nearest_key(contents, key));
  return std::move(made).with_file(reader.path().string()).with_key(key);
}

}  // namespace shardmesh
