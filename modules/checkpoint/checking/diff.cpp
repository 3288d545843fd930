// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/zip.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.torch_file;
import :selected_sides;

namespace shardmesh {
namespace {

using pair_of_entries = std::pair<const diff_entry*, const diff_entry*>;

std::map<std::string_view, pair_of_entries> pairs_of(const diff_side& left, const diff_side& right) {
  std::map<std::string_view, pair_of_entries> by_key;
  for (const diff_entry& entry : left.entries) by_key[entry.key].first = &entry;
  for (const diff_entry& entry : right.entries) by_key[entry.key].second = &entry;
  return by_key;
}

key_difference found(const std::string& key, difference_kind kind, std::string text) {
  key_difference made;
  made.key = key;
  made.kind = kind;
  made.text = std::move(text);
  return made;
}

std::vector<box> boxes_of(const catalog& contents, const tensor_entry& tensor) {
  std::vector<box> boxes;
  for (std::int32_t i = 0; i < tensor.chunk_count; ++i) {
    box b = contents.chunk_box(tensor, tensor.first_chunk + i);
    if (!b.is_empty()) boxes.push_back(b);
  }
  std::sort(boxes.begin(), boxes.end());
  return boxes;
}

// Prints a value with the precision of the elements: the difference of two float32 is shown as a float32.
std::string difference_text(double value, dtype left, dtype right) {
  const auto is_narrow = [](dtype type) {
    return kind(type) == dtype_kind::floating ? bits(type) <= 32
                                              : kind(type) == dtype_kind::complex && bits(type) <= 64;
  };
  if (is_narrow(left) && is_narrow(right)) return fmt::format("{}", static_cast<float>(value));
  return fmt::format("{}", value);
}

// Adds the side's path to an error that names no file.
template <class T>
result<T> of_side(const diff_side& side, result<T> outcome) {
  if (outcome || !outcome.error().file.empty()) return outcome;
  return std::move(outcome).error().with_file(side.reader.path().string());
}

path above(const path& where) {
  path made;
  for (std::size_t i = 0; i + 1 < where.size(); ++i) made.push_back(where[i]);
  return made;
}

// The lists of a checkpoint, each with the largest index that an entry names.
std::map<std::string, std::int64_t> lists_of(const catalog& contents) {
  std::map<std::string, std::int64_t> lists;
  const auto add = [&](const path& where) {
    path list;
    for (const path_key& step : where) {
      if (step.is_index()) {
        const auto [found, is_new] = lists.try_emplace(dotted(list), step.index());
        found->second = std::max(found->second, step.index());
      }
      list.push_back(step);
    }
  };
  for (const tensor_entry& tensor : contents.tensors) add(tensor.where);
  for (const object_entry& object : contents.objects) add(object.where);
  return lists;
}

class comparer {
 public:
  comparer(const diff_side& left, const diff_side& right, const diff_options& options)
      : left_(left), right_(right), options_(options), left_source_(left.reader), right_source_(right.reader) {}

  // Prepares to compare wrapping tensors that both sides have by their components.
  void find_components(const std::map<std::string_view, pair_of_entries>& pairs) {
    const auto is_wrapper = [](const diff_side& side, const diff_entry* entry) {
      return entry != nullptr && entry->is_tensor && !side.reader.contents().tensors[entry->index].opaque_type.empty();
    };
    if (std::none_of(pairs.begin(), pairs.end(), [&](const auto& pair) {
          return is_wrapper(left_, pair.second.first) && is_wrapper(right_, pair.second.second);
        }))
      return;
    // Opening fails if an entry has the name of a component. Then the stored bytes are compared.
    if (auto found = torch_file::wrapping_tensors::open(left_.reader)) left_wrappers_ = *std::move(found);
    if (auto found = torch_file::wrapping_tensors::open(right_.reader)) right_wrappers_ = *std::move(found);
  }

  // A list position that no entry names is None in formats that nest, because PyTorch's flattening loses empty dicts.
  // After this call, the two compare equal.
  void find_gaps(const std::map<std::string_view, pair_of_entries>& pairs) {
    const auto is_element = [](const diff_side& side, const diff_entry* entry) {
      return element(side, entry) != nullptr;
    };
    if (std::any_of(pairs.begin(), pairs.end(),
                    [&](const auto& pair) { return !pair.second.second && is_element(left_, pair.second.first); }))
      right_lists_ = lists_of(right_.reader.contents());
    if (std::any_of(pairs.begin(), pairs.end(),
                    [&](const auto& pair) { return !pair.second.first && is_element(right_, pair.second.second); }))
      left_lists_ = lists_of(left_.reader.contents());
  }

  result<std::vector<key_difference>> compare_pair(const pair_of_entries& both) {
    const auto& [a, b] = both;
    if (!a || !b) {
      SHARDMESH_TRY(const bool is_equal, a ? is_gap(left_, *a, right_lists_) : is_gap(right_, *b, left_lists_));
      if (is_equal) return std::vector<key_difference>{};
      return std::vector{a ? found(a->key, difference_kind::only_left, "only on the left")
                           : found(b->key, difference_kind::only_right, "only on the right")};
    }
    if (a->is_tensor != b->is_tensor) {
      // An object that cannot be read could be a tensor.
      const auto value = a->is_tensor ? of_side(right_, right_.reader.read_object(b->index))
                                      : of_side(left_, left_.reader.read_object(a->index));
      if (!value) return value.error();
      return std::vector{found(a->key, difference_kind::kind,
                               fmt::format("{} on the left, {} on the right", a->is_tensor ? "a tensor" : "an object",
                                           b->is_tensor ? "a tensor" : "an object"))};
    }
    return a->is_tensor ? compare_tensors(*a, *b) : compare_objects(*a, *b);
  }

 private:
  const tensor_entry& tensor(const diff_side& side, const diff_entry& entry) const {
    return side.reader.contents().tensors[entry.index];
  }

  // The path of an entry that is an object in a list; null for other entries.
  static const path* element(const diff_side& side, const diff_entry* entry) {
    if (entry == nullptr || entry->is_tensor) return nullptr;
    const path& where = side.reader.contents().objects[entry->index].where;
    return !where.empty() && where.back().is_index() ? &where : nullptr;
  }

  // True when the entry is None and the other side's list has a gap there.
  static result<bool> is_gap(const diff_side& side, const diff_entry& entry,
                             const std::map<std::string, std::int64_t>& lists) {
    const path* const where = element(side, &entry);
    if (where == nullptr) return false;
    const auto list = lists.find(dotted(above(*where)));
    if (list == lists.end() || list->second < where->back().index()) return false;
    SHARDMESH_TRY(const object_value value, of_side(side, side.reader.read_object(entry.index)));
    return value.kind == "none";
  }

  result<std::vector<key_difference>> compare_objects(const diff_entry& a, const diff_entry& b) const {
    SHARDMESH_TRY(const object_value left, of_side(left_, left_.reader.read_object(a.index)));
    SHARDMESH_TRY(const object_value right, of_side(right_, right_.reader.read_object(b.index)));
    if (left.kind != right.kind || left.type != right.type || left.json != right.json) {
      const auto shown = [](const object_value& v) { return fmt::format("{} {}", v.type, object_text(v.json, 80)); };
      return std::vector{
          found(a.key, difference_kind::object, fmt::format("{} against {}", shown(left), shown(right)))};
    }
    // The text contains only plain data; for other values, it has only the name of the type.
    if (!torch_file::has_unknown_values(left.json)) return std::vector<key_difference>{};
    SHARDMESH_TRY(const bool equal, have_equal_content({false, a.index}, {false, b.index}));
    if (equal) return std::vector<key_difference>{};
    return std::vector{found(a.key, difference_kind::object, fmt::format("the bytes of two {} differ", left.type))};
  }

  // Compares entries without a printable value by their content. A side that keeps only the type (objects.json) has
  // nothing that could differ.
  result<bool> have_equal_content(const whole_entry& a, const whole_entry& b) const {
    SHARDMESH_TRY(const auto left, of_side(left_, left_.reader.content_of(a)));
    SHARDMESH_TRY(const auto right, of_side(right_, right_.reader.content_of(b)));
    return !left || !right || *left == *right;
  }

  result<std::vector<key_difference>> compare_tensors(const diff_entry& a, const diff_entry& b) {
    const tensor_entry& left = tensor(left_, a);
    const tensor_entry& right = tensor(right_, b);
    std::vector<key_difference> all;
    const bool left_opaque = !left.opaque_type.empty(), right_opaque = !right.opaque_type.empty();
    if (left_opaque && right_opaque) {
      SHARDMESH_TRY(auto outcome, compare_components(a, b));
      if (outcome) return *std::move(outcome);
    }
    if (left_opaque != right_opaque) {
      // An archive that cannot be opened could be of either kind.
      const diff_side& plain_side = left_opaque ? right_ : left_;
      const tensor_entry& plain = left_opaque ? right : left;
      if (plain.chunk_count > 0)
        SHARDMESH_TRY(of_side(plain_side, plain_side.reader.open_chunk(plain, plain.first_chunk)));
      const auto shown = [](const tensor_entry& t) { return t.opaque_type.empty() ? "a plain tensor" : t.opaque_type; };
      all.push_back(found(a.key, difference_kind::kind,
                          fmt::format("{} on the left, {} on the right", shown(left), shown(right))));
      return all;
    }
    if (left_opaque && left.opaque_type != right.opaque_type) {
      all.push_back(found(a.key, difference_kind::kind,
                          fmt::format("{} on the left, {} on the right", left.opaque_type, right.opaque_type)));
      return all;
    }
    // The shape and dtype of an opaque tensor inside a .pt file are unknown.
    if (left_opaque && (left.chunk_count == 0 || right.chunk_count == 0))
      return compare_opaque_tensors(a, b, std::move(all));
    if (left.shape != right.shape) {
      all.push_back(found(a.key, difference_kind::shape,
                          fmt::format("shape {} against {}", to_string(left.shape), to_string(right.shape))));
      return all;
    }
    if (a.type != b.type && !options_.ignore_dtype)
      all.push_back(
          found(a.key, difference_kind::dtype, fmt::format("dtype {} against {}", name(a.type), name(b.type))));
    if (options_.layout && boxes_of(left_.reader.contents(), left) != boxes_of(right_.reader.contents(), right))
      all.push_back(found(a.key, difference_kind::layout,
                          fmt::format("{} chunk{} against {}, or different boxes", left.chunk_count,
                                      left.chunk_count == 1 ? "" : "s", right.chunk_count)));
    if (left_opaque) return compare_opaque_tensors(a, b, std::move(all));
    if (a.type != b.type && !options_.ignore_dtype) return all;
    SHARDMESH_TRY(auto values, compare_values(a, b));
    if (values) all.push_back(std::move(*values));
    return all;
  }

  // Compares the wrappers of both sides by their components. Returns nothing if either side's components are unknown.
  result<std::optional<std::vector<key_difference>>> compare_components(const diff_entry& a,
                                                                        const diff_entry& b) const {
    using all_found = std::optional<std::vector<key_difference>>;
    const auto left = left_wrappers_ ? left_wrappers_->components_of(a.index) : std::nullopt;
    const auto right = right_wrappers_ ? right_wrappers_->components_of(b.index) : std::nullopt;
    if (!left || !right) return all_found();
    const diff_side left_side = side_of(*left, tensor(left_, a).key, a.key);
    const diff_side right_side = side_of(*right, tensor(right_, b).key, b.key);
    comparer compare_parts(left_side, right_side, options_);
    std::vector<key_difference> all;
    for (const auto& [key, both] : pairs_of(left_side, right_side)) {
      const bool are_descriptions = both.first && both.second && !both.first->is_tensor && !both.second->is_tensor;
      SHARDMESH_TRY(std::vector<key_difference> found,
                    are_descriptions ? compare_parts.compare_descriptions(*both.first, *both.second)
                                     : compare_parts.compare_pair(both));
      std::move(found.begin(), found.end(), std::back_inserter(all));
    }
    return all_found(std::move(all));
  }

  // Compares descriptions without the components' dtypes, shapes, and strides. Those are compared with the components,
  // as tensors.
  result<std::vector<key_difference>> compare_descriptions(const diff_entry& a, const diff_entry& b) const {
    const auto without_components = [](const object_value& value) {
      auto description = nlohmann::json::parse(value.json, nullptr, false);
      if (!description.is_object() || !description.contains("$dict")) return description;
      auto& entries = description["$dict"];  // a list of [key, value]
      for (auto entry = entries.begin(); entry != entries.end();)
        entry = (*entry)[0] == "components" ? entries.erase(entry) : std::next(entry);
      return description;
    };
    SHARDMESH_TRY(const object_value of_left, of_side(left_, left_.reader.read_object(a.index)));
    SHARDMESH_TRY(const object_value of_right, of_side(right_, right_.reader.read_object(b.index)));
    auto left = without_components(of_left), right = without_components(of_right);
    if (left == right) return std::vector<key_difference>{};
    // Entries that are equal on both sides would hide the others in the text.
    if (left.is_object() && right.is_object()) {
      const auto without = [](nlohmann::json from, const nlohmann::json& others) {
        auto& entries = from["$dict"];
        for (auto entry = entries.begin(); entry != entries.end();)
          entry = std::find(others.begin(), others.end(), *entry) != others.end() ? entries.erase(entry) : entry + 1;
        return from;
      };
      const auto rest = without(left, right["$dict"]);
      right = without(right, left["$dict"]);
      left = rest;
    }
    return std::vector{
        found(a.key, difference_kind::object,
              fmt::format("{} against {}", object_text(left.dump(), 200), object_text(right.dump(), 200)))};
  }

  // The entries of a wrapper that is called `key` in its checkpoint, renamed to be below `shown`.
  static diff_side side_of(const torch_file::tensor_components& parts, std::string_view key, const std::string& shown) {
    diff_side side{*parts.in, {}};
    const catalog& contents = parts.in->contents();
    const auto below = [&](const std::string& part) { return shown + part.substr(key.size()); };
    for (const std::size_t i : parts.tensors)
      side.entries.push_back({below(contents.tensors[i].key), i, true, contents.tensors[i].type});
    side.entries.push_back(
        {below(contents.objects[parts.description].key), parts.description, false, dtype::undefined});
    return side;
  }

  // Compares the bytes if both sides have them as one item; otherwise the archives of the chunks, one by one.
  result<std::vector<key_difference>> compare_opaque_tensors(const diff_entry& a, const diff_entry& b,
                                                             std::vector<key_difference> all) const {
    const tensor_entry& left = tensor(left_, a);
    const tensor_entry& right = tensor(right_, b);
    if (left.shape.rank() > 0 && right.shape.rank() > 0 && left.shape != right.shape) {
      all.push_back(found(a.key, difference_kind::shape,
                          fmt::format("shape {} against {}", to_string(left.shape), to_string(right.shape))));
      return all;
    }
    SHARDMESH_TRY(const auto left_content, of_side(left_, left_.reader.content_of({true, a.index})));
    SHARDMESH_TRY(const auto right_content, of_side(right_, right_.reader.content_of({true, b.index})));
    if (!left_content || !right_content)
      return fail(errc::unsupported,
                  fmt::format("tensors of {} cannot be compared: their values are not read", left.opaque_type))
          .with_key(a.key)
          .with_hint("leave the tensor out");
    bool equal = *left_content == *right_content;
    if (left.chunk_count > 1 || right.chunk_count > 1) {
      equal = boxes_of(left_.reader.contents(), left) == boxes_of(right_.reader.contents(), right);
      for (std::int32_t i = 0; equal && i < left.chunk_count; ++i) {
        SHARDMESH_TRY(const auto l, of_side(left_, left_.reader.chunk_archive(left, left.first_chunk + i)));
        SHARDMESH_TRY(const auto r, of_side(right_, right_.reader.chunk_archive(right, right.first_chunk + i)));
        equal = l == r;
      }
    }
    if (!equal) all.push_back(found(a.key, difference_kind::values, "the stored bytes of an opaque tensor differ"));
    return all;
  }

  result<std::optional<key_difference>> compare_values(const diff_entry& a, const diff_entry& b) {
    const tensor_entry& left = tensor(left_, a);
    const tensor_entry& right = tensor(right_, b);
    SHARDMESH_TRY(const distribution left_held, of_side(left_, left_.reader.contents().distribution_of(left)));
    SHARDMESH_TRY(const distribution right_held, of_side(right_, right_.reader.contents().distribution_of(right)));
    const std::int64_t per_thread = options_.memory_bytes / thread_count(options_.threads) / 3;
    const std::int64_t slab_bytes = std::clamp<std::int64_t>(per_thread, 1 << 18, 8 << 20);
    const box whole = box::whole(left.shape);
    const bool sub_byte = bits(a.type) % 8 != 0 || bits(b.type) % 8 != 0;
    const std::int64_t item = sub_byte ? 1 : std::max(item_bytes(a.type), item_bytes(b.type));
    slab_walk walk(whole, sub_byte ? whole.volume() : slab_bytes / item);
    std::optional<key_difference> total;
    while (const auto slab = walk.next()) {
      SHARDMESH_TRY(const host_tensor l, of_side(left_, slab_of(left_source_, left, left_held, a.type, *slab)));
      SHARDMESH_TRY(const host_tensor r, of_side(right_, slab_of(right_source_, right, right_held, b.type, *slab)));
      const const_tensor_view left_view = adapter<host_tensor>::view(l);
      const const_tensor_view right_view = adapter<host_tensor>::view(r);
      SHARDMESH_TRY(
          const comparison outcome,
          compare(left_view, right_view, {.tolerance = options_.tolerance, .ignore_dtype = options_.ignore_dtype}));
      if (outcome.different == 0) continue;
      if (!total) {
        total = found(a.key, difference_kind::values, "");
        total->first_index = outcome.first_index;
        for (std::size_t d = 0; d < slab->rank(); ++d) total->first_index[d] += slab->offsets[d];
        total->text =
            fmt::format("first at {}: {} against {}", to_string(total->first_index),
                        value_text(left_view, outcome.first_index), value_text(right_view, outcome.first_index));
      }
      total->different += outcome.different;
      if (std::isnan(outcome.largest_difference) || outcome.largest_difference > total->largest)
        total->largest = outcome.largest_difference;
    }
    if (total) {
      total->elements = whole.volume();
      total->text = fmt::format("{} of {} {}, {}, largest difference {}", total->different, total->elements,
                                total->elements == 1 ? "element differs" : "elements differ", total->text,
                                difference_text(total->largest, a.type, b.type));
    }
    return total;
  }

  static result<host_tensor> slab_of(chunk_source& source, const tensor_entry& stored, const distribution& held,
                                     dtype type, const box& slab) {
    SHARDMESH_TRY(host_tensor made, host_tensor::make(type, slab.sizes));
    const memory_target target{0, slab, adapter<host_tensor>::view(made)};
    item_run_options run;
    run.threads = 1;
    if (const detail::call_in_progress* const call = detail::current_call()) run.call = call->limits;
    SHARDMESH_TRY(run_to_memory({&held, 1}, {&stored.key, 1}, {&target, 1}, source, run));
    return made;
  }

  const diff_side& left_;
  const diff_side& right_;
  const diff_options& options_;
  chunk_source left_source_, right_source_;
  std::optional<torch_file::wrapping_tensors> left_wrappers_, right_wrappers_;
  std::map<std::string, std::int64_t> left_lists_, right_lists_;
};

}  // namespace

diff_side whole_side(checkpoint_reader& reader) {
  diff_side side{reader, {}};
  const catalog& contents = reader.contents();
  for (const auto& [i, tensor] : ranges::views::enumerate(contents.tensors))
    side.entries.push_back({tensor.key, i, true, tensor.type});
  for (const auto& [i, object] : ranges::views::enumerate(contents.objects))
    side.entries.push_back({object.key, i, false, dtype::undefined});
  return side;
}

result<diff_report> diff(const diff_side& left, const diff_side& right, const diff_options& options) {
  const detail::call_scope limits(options.call().named("comparison"));
  if (!(options.tolerance >= 0)) return fail(errc::invalid_argument, "a tolerance must be a number of 0 or more");
  const auto by_key = pairs_of(left, right);
  const std::vector<std::pair<std::string_view, pair_of_entries>> pairs(by_key.begin(), by_key.end());
  left.reader.identify_opaque_tensors();
  right.reader.identify_opaque_tensors();
  comparer compare_all(left, right, options);
  compare_all.find_components(by_key);
  compare_all.find_gaps(by_key);
  std::vector<std::vector<key_difference>> found_in(pairs.size());
  std::vector<std::optional<error>> unreadable(pairs.size());
  SHARDMESH_TRY(
      parallel_for(options.threads, static_cast<std::int64_t>(pairs.size()), [&](std::int64_t i) -> result<void> {
        SHARDMESH_TRY(detail::check_current_call());
        const auto at = static_cast<std::size_t>(i);
        auto outcome = compare_all.compare_pair(pairs[at].second);
        if (outcome)
          found_in[at] = std::move(*outcome);
        else if (detail::is_limit_error(outcome.error()))
          return std::move(outcome).error();
        else
          unreadable[at] = std::move(outcome).error();
        return {};
      }));
  diff_report report;
  for (auto&& [pair, differences, failure] : ranges::views::zip(pairs, found_in, unreadable)) {
    const auto& [a, b] = pair.second;
    if (a && b && a->is_tensor && b->is_tensor) {
      ++report.tensors;
      const catalog& contents = left.reader.contents();
      report.bytes = checked_add(report.bytes, bytes_of(contents, contents.tensors[a->index])).value_or(INT64_MAX);
    } else if (a && b && !a->is_tensor && !b->is_tensor) {
      ++report.objects;
    }
    std::move(differences.begin(), differences.end(), std::back_inserter(report.differences));
    if (!failure) continue;
    std::string key(pair.first);
    error cause = std::move(*failure);
    if (cause.key.empty()) cause.key = key;
    if (cause.file.empty()) cause.file = printable_url((a ? left : right).reader.path().string());
    error shown = cause;
    if (shown.key == key) shown.key.clear();
    report.differences.push_back(
        found(key, difference_kind::unreadable, fmt::format("cannot be read: {}", to_string(shown))));
    report.problems.push_back(std::move(cause));
  }
  for (const diff_side* side : {&left, &right})
    if (auto checked = of_side(*side, side->reader.finish_checks()); !checked) {
      error shown = checked.error();
      shown.key.clear();
      report.differences.push_back(
          found(checked.error().key, difference_kind::unreadable, fmt::format("cannot be read: {}", to_string(shown))));
      report.problems.push_back(std::move(checked).error());
    }
  return report;
}

result<diff_report> diff(checkpoint_reader& left, checkpoint_reader& right, const diff_options& options) {
  const detail::call_scope limits(options.call().named("comparison"));
  const comparable_views both(left, right);
  SHARDMESH_TRY(selected_sides sides, select_sides(both.left(), both.right(), options.selection));
  SHARDMESH_TRY(diff_report report, diff(sides.left, sides.right, options));
  report.notes = std::move(sides.notes);
  return report;
}

}  // namespace shardmesh
