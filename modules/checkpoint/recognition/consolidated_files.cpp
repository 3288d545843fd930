// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.torch_file;
import :consolidated_cut;
import :consolidated_files;
import :consolidated_name;
import :consolidated_sizes;
import :same_elements;

namespace shardmesh {
namespace fs = places;
namespace {

constexpr std::string_view embedding = "tok_embeddings.weight";

// True for statistics that each training rank gathered from its own tokens.
bool is_statistic(std::string_view key) {
  return key.ends_with("_gate_stats_3E") || key.ends_with(".expert_activation_DE");
}

class consolidated_reader final : public composed_reader {
 public:
  explicit consolidated_reader(const fs::path& folder) : composed_reader(checkpoint_format::torch_files, folder) {}

  result<void> open(const open_options& options) {
    SHARDMESH_TRY(const auto files, list_consolidated_files(path_));
    SHARDMESH_TRY(check_complete(files));
    for (const auto& [number, name] : files) {
      SHARDMESH_TRY(auto opened, torch_file::open(path_ / name, options));
      add_part(std::move(opened));
    }
    if (part_count() == 1) {
      SHARDMESH_TRY(check_only_file());
      return add_all();
    }
    if (are_disjoint()) {
      notes_.push_back(fmt::format("no two of the {} files have an entry in common: nothing is merged", part_count()));
      return add_all();
    }
    SHARDMESH_TRY(check_same_keys());
    SHARDMESH_TRY(consolidated_sizes sizes, read_consolidated_sizes(params_file(), count()));
    learn_vocabulary(sizes);
    const std::size_t tensors = contents_of(0).tensors.size(), objects = contents_of(0).objects.size();
    for (std::size_t i = 0; i < tensors; ++i) SHARDMESH_TRY(merge_tensor(i, sizes));
    for (std::size_t i = 0; i < objects; ++i) SHARDMESH_TRY(merge_object(i));
    warn_of_copies();
    return {};
  }

 private:
  fs::path params_file() const { return path_ / "params.json"; }
  std::int64_t count() const { return static_cast<std::int64_t>(part_count()); }
  const catalog& contents_of(std::size_t part) { return this->part(part).contents(); }
  std::string file_of(std::size_t part) { return this->part(part).path().string(); }
  std::string name_of(std::size_t part) { return this->part(part).path().filename().string(); }
  error at(error problem, const std::string& key, std::size_t part) {
    return std::move(problem).with_key(key).with_file(file_of(part));
  }

  result<void> check_complete(const std::map<std::int64_t, std::string>& files) const {
    if (files.empty()) return fail(errc::bad_format, "has no consolidated.00.pth").with_file(path_.string());
    const std::int64_t last = files.rbegin()->first;
    if (static_cast<std::int64_t>(files.size()) == last + 1) return {};
    std::int64_t missing = 0;
    while (files.contains(missing)) ++missing;
    return fail(errc::incomplete_save, fmt::format("the file with the number {:02} is missing", missing))
        .with_file((path_ / files.rbegin()->second).string())
        .with_values(detail::counted(last + 1, "file"), fmt::format("{}", files.size()));
  }

  // A download that was interrupted after the first of several files leaves a single file. Its shapes then differ from
  // those that params.json states.
  result<void> check_only_file() {
    std::error_code ignored;
    if (!fs::exists(params_file(), ignored)) return {};
    auto sizes = read_consolidated_sizes(params_file(), 1);
    if (!sizes) {
      warnings_.push_back(std::move(sizes).error());
      return {};
    }
    learn_vocabulary(*sizes);
    for (const tensor_entry& tensor : contents_of(0).tensors)
      if (auto cut = cut_of(tensor.key, tensor.shape, *sizes); !cut) return at(std::move(cut).error(), tensor.key, 0);
    return {};
  }

  bool are_disjoint() {
    std::unordered_set<std::string_view> keys;
    for (std::size_t part = 0; part < part_count(); ++part) {
      for (const tensor_entry& tensor : contents_of(part).tensors)
        if (!keys.insert(tensor.key).second) return false;
      for (const object_entry& object : contents_of(part).objects)
        if (!keys.insert(object.key).second) return false;
    }
    return true;
  }

  result<void> add_all() {
    for (std::size_t part = 0; part < part_count(); ++part) {
      const catalog& contents = contents_of(part);
      for (std::size_t i = 0; i < contents.tensors.size(); ++i)
        SHARDMESH_TRY(add_whole_tensor(contents.tensors[i].key, contents.tensors[i].where, part, i));
      for (std::size_t i = 0; i < contents.objects.size(); ++i)
        SHARDMESH_TRY(add_object(contents.objects[i].key, contents.objects[i].where, part, i));
    }
    return {};
  }

  result<void> check_same_keys() {
    for (std::size_t other = 1; other < part_count(); ++other) {
      SHARDMESH_TRY(check_has_keys(0, other));
      SHARDMESH_TRY(check_has_keys(other, 0));
    }
    return {};
  }

  // Checks that the entries of `part` are entries of `other`, of the same kind.
  result<void> check_has_keys(std::size_t part, std::size_t other) {
    const catalog &has = contents_of(part), &needs = contents_of(other);
    const auto refuse = [&](const std::string& key, std::string_view kind) {
      return at(fail(errc::missing_key, fmt::format("is no {} here, but one in {}", kind, name_of(part)))
                    .with_values(fmt::format("all entries of {}", name_of(part)), "none of this name")
                    .with_hint("check that the files belong to one model, or open them one by one"),
                key, other);
    };
    for (const tensor_entry& tensor : has.tensors)
      if (needs.find(tensor.key) == nullptr) return refuse(tensor.key, "tensor");
    for (const object_entry& object : has.objects)
      if (needs.find_object(object.key) == nullptr) return refuse(object.key, "object");
    return {};
  }

  // Takes the size of the vocabulary from an embedding whose columns are cut, if params.json does not state it.
  void learn_vocabulary(consolidated_sizes& sizes) {
    const tensor_entry* const found = contents_of(0).find(embedding);
    if (sizes.vocabulary || found == nullptr || found->shape.rank() != 2) return;
    if (checked_multiply(found->shape[1], sizes.files) == sizes.model) sizes.vocabulary = found->shape[0];
  }

  // The position of the tensor with this key in a part's catalog. Precondition: the part has it.
  std::size_t position_of(const std::string& key, std::size_t part) {
    const catalog& contents = contents_of(part);
    return static_cast<std::size_t>(contents.find(key) - contents.tensors.data());
  }

  // Merges the parts of the first file's tensor `index`.
  result<void> merge_tensor(std::size_t index, const consolidated_sizes& sizes) {
    const tensor_entry& first = contents_of(0).tensors[index];
    std::vector<std::size_t> positions{index};
    for (std::size_t part = 1; part < part_count(); ++part) {
      positions.push_back(position_of(first.key, part));
      const tensor_entry& other = contents_of(part).tensors[positions.back()];
      if (auto same = check_same_form(first, other); !same) return at(std::move(same).error(), first.key, part);
    }
    auto cut = cut_of(first.key, first.shape, sizes);
    if (!cut) return at(std::move(cut).error(), first.key, 0);
    if (!*cut) return merge_copies(positions);
    if (!first.opaque_type.empty() || first.chunk_count != 1)
      return at(fail(errc::unsupported, "a part that is not one plain tensor cannot be merged"), first.key, 0);
    return merge_parts(positions, **cut);
  }

  result<void> check_same_form(const tensor_entry& a, const tensor_entry& b) {
    const std::string first = name_of(0);
    if (a.opaque_type != b.opaque_type || a.opaque_kind != b.opaque_kind || a.chunk_count != b.chunk_count)
      return fail(errc::disagreement, fmt::format("is of another kind than in {}", first));
    if (a.type != b.type)
      return fail(errc::dtype_mismatch, fmt::format("has another dtype than in {}", first))
          .with_values(std::string(name(a.type)), std::string(name(b.type)));
    if (a.shape != b.shape)
      return fail(errc::shape_mismatch, fmt::format("has another shape than in {}", first))
          .with_values(to_string(a.shape), to_string(b.shape));
    return {};
  }

  result<void> merge_parts(const std::vector<std::size_t>& positions, const consolidated_cut& cut) {
    const tensor_entry& first = contents_of(0).tensors[positions.front()];
    tensor_entry made;
    made.key = first.key;
    made.where = first.where;
    made.type = first.type;
    made.shape = cut.whole;
    made.properties = first.properties;
    made.properties.strides.reset();
    SHARDMESH_TRY(add_tensor(std::move(made)));
    // Blocks are runs of elements because they are along dimension 0, or because there is only one.
    std::int64_t row = 1;
    for (std::size_t d = 1; d < first.shape.rank(); ++d) row *= first.shape[d];
    for (std::size_t part = 0; part < part_count(); ++part) {
      const std::int32_t chunk = contents_of(part).tensors[positions[part]].first_chunk;
      std::int64_t begin = 0, whole_begin = 0;  // of the block along the dimension
      for (const std::int64_t length : cut.blocks) {
        box where = box::whole(first.shape);
        where.sizes[cut.dim] = length;
        where.offsets[cut.dim] = whole_begin + static_cast<std::int64_t>(part) * length;
        // A tensor without elements has one empty chunk.
        if (!where.is_empty() || contents_.tensors.back().chunk_count == 0)
          SHARDMESH_TRY(add_chunk(where, {part, positions[part], chunk, begin * row, where.sizes}));
        begin += length;
        whole_begin += length * count();
      }
    }
    return {};
  }

  // Adds a tensor that is not cut. It must be equal in all files, except copies that training did not keep equal.
  result<void> merge_copies(const std::vector<std::size_t>& positions) {
    const tensor_entry& first = contents_of(0).tensors[positions.front()];
    for (std::size_t part = 1; part < part_count(); ++part) {
      auto same = are_equal(positions.front(), part, positions[part]);
      if (!same) return at(std::move(same).error(), first.key, part);
      if (*same) continue;
      if (is_statistic(first.key)) return add_each(positions, true);
      if (is_replicated_by_name(first.key)) {
        differing_.push_back(first.key);
        break;
      }
      return at(fail(errc::disagreement,
                     fmt::format("its values differ from those of {}, and no rule says how it is cut", name_of(0)))
                    .with_values("equal values in all files", "other values")
                    .with_hint("check that the files belong to one model, or open them one by one"),
                first.key, part);
    }
    return add_whole_tensor(first.key, first.where, 0, positions.front());
  }

  // True when the first file's tensor equals that of another file. Precondition: they have the same form.
  result<bool> are_equal(std::size_t index, std::size_t other, std::size_t other_index) {
    const tensor_entry &a = contents_of(0).tensors[index], &b = contents_of(other).tensors[other_index];
    if (!a.opaque_type.empty()) return have_same_content(true, index, other, other_index);
    for (std::int32_t chunk = 0; chunk < a.chunk_count; ++chunk) {
      if (contents_of(0).chunk_box(a, a.first_chunk + chunk) != contents_of(other).chunk_box(b, b.first_chunk + chunk))
        return false;
      SHARDMESH_TRY(const auto left, part(0).open_chunk(a, a.first_chunk + chunk));
      SHARDMESH_TRY(const auto right, part(other).open_chunk(b, b.first_chunk + chunk));
      SHARDMESH_TRY(const bool same, have_same_elements(*left, *right));
      if (!same) return false;
    }
    return true;
  }

  result<bool> have_same_content(bool are_tensors, std::size_t index, std::size_t other, std::size_t other_index) {
    SHARDMESH_TRY(const auto left, part(0).content_of({are_tensors, index}));
    SHARDMESH_TRY(const auto right, part(other).content_of({are_tensors, other_index}));
    return left && left == right;
  }

  result<void> merge_object(std::size_t index) {
    const object_entry& first = contents_of(0).objects[index];
    SHARDMESH_TRY(const object_value value, part(0).read_object(index));
    std::vector<std::size_t> positions{index};
    bool are_same = true;
    for (std::size_t other = 1; other < part_count(); ++other) {
      const catalog& contents = contents_of(other);
      positions.push_back(static_cast<std::size_t>(contents.find_object(first.key) - contents.objects.data()));
      SHARDMESH_TRY(const object_value found, part(other).read_object(positions.back()));
      const bool is_plain = !torch_file::has_unknown_values(value.json) && !torch_file::has_unknown_values(found.json);
      if (is_plain && (value.kind != found.kind || value.type != found.type || value.json != found.json))
        return at(fail(errc::disagreement, fmt::format("its value differs from that of {}", name_of(0)))
                      .with_hint("check that the files belong to one model, or open them one by one"),
                  first.key, other);
      if (is_plain || !are_same) continue;
      SHARDMESH_TRY(are_same, have_same_content(false, index, other, positions.back()));
    }
    return are_same ? add_object(first.key, first.where, 0, index) : add_each(positions, false);
  }

  // Adds an entry for each file.
  result<void> add_each(const std::vector<std::size_t>& positions, bool are_tensors) {
    for (std::size_t part = 0; part < part_count(); ++part) {
      const std::size_t index = positions[part];
      const std::string rank = fmt::format("rank_{}", part);
      const catalog& contents = contents_of(part);
      const std::string key = (are_tensors ? contents.tensors[index].key : contents.objects[index].key) + "." + rank;
      shardmesh::path where = are_tensors ? contents.tensors[index].where : contents.objects[index].where;
      where.push_back(rank);
      SHARDMESH_TRY(are_tensors ? add_whole_tensor(key, std::move(where), part, index)
                                : add_object(key, std::move(where), part, index));
    }
    return {};
  }

  void warn_of_copies() {
    if (differing_.empty()) return;
    warnings_.push_back(
        fail(errc::disagreement,
             fmt::format("the files have different copies of {}, and those of {} are read, as by Meta's programs: {}",
                         detail::counted(differing_.size(), "tensor"), name_of(0), name_list(differing_)))
            .with_file(path_.string())
            .with_hint("check that the files belong to one model"));
  }

  std::vector<std::string> differing_;  // keys of differing copies of which the first file's is read
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open_consolidated_files(const fs::path& folder,
                                                                   const open_options& options) {
  auto reader = std::make_unique<consolidated_reader>(folder);
  SHARDMESH_TRY(reader->open(options));
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

}  // namespace shardmesh
