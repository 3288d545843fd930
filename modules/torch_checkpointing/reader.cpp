// SPDX-License-Identifier: Apache-2.0
// The reader of torch_checkpointing's folders: the ranks' files as parts of one checkpoint.
module;
#include <fmt/format.h>
#include <try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.torch_checkpointing;

import shardmesh.safetensors;
import :same_value;
import :stray_files;

namespace shardmesh::torch_checkpointing {
namespace fs = std::filesystem;
namespace {

using tree_path = shardmesh::path;  // readers have a path of their own

constexpr std::size_t most_problems = 1000;

std::string text_of(const path_key& step) {
  return step.is_index() ? std::to_string(step.index()) : std::string(step.name());
}

// Paths of metadata and of files meet here: each step's text behind its length, as names may hold anything.
std::string joined(const tree_path& where, std::size_t from) {
  std::string text;
  for (std::size_t i = from; i < where.size(); ++i) {
    const std::string step = text_of(where[i]);
    text += fmt::format("{}:{}", step.size(), step);
  }
  return text;
}

class folder_reader final : public composed_reader {
 public:
  folder_reader(fs::path folder, const open_options& options)
      : composed_reader(checkpoint_format::torch_checkpointing, std::move(folder)),
        options_(options),
        budget_(options.limits) {}

  result<void> open() {
    SHARDMESH_TRY(const metadata described, read_metadata());
    contents_.version = described.version;
    for (const item_metadata& item : described.items) {
      auto done = add_item(item, described.world_size);
      if (!done) return located(std::move(done).error());
    }
    SHARDMESH_TRY(const stray_files strays, find_strays(path_, described));
    for (const auto& [key, files] : strays.items) {
      auto done = add_stray(key, files, described.world_size);
      if (!done) return located(std::move(done).error());
    }
    for (const std::string& name : strays.unread)
      notes_.push_back(fmt::format("{} is not read: it is no file of torch.save, and no metadata describes it", name));
    std::unordered_set<std::string> seen;
    std::erase_if(notes_, [&](const std::string& note) { return !seen.insert(note).second; });
    return {};
  }

  // A box of a rank's tensor: where it begins there is ours to know.
  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    const auto inner = inner_boxes_.find(chunk);
    if (inner == inner_boxes_.end()) return composed_reader::open_chunk(tensor, chunk);
    const auto& [number, index, where] = inner->second;
    checkpoint_reader& from = part(number);
    const tensor_entry& stored = from.contents().tensors[index];
    SHARDMESH_TRY(const auto opened, from.open_chunk(stored, stored.first_chunk));
    auto made = std::make_shared<opened_chunk>(*opened);
    for (std::size_t d = 0; d < where.rank(); ++d)
      made->tensor.storage_offset += where.offsets[d] * made->tensor.strides[d];
    made->tensor.sizes = where.sizes;
    return std::shared_ptr<const opened_chunk>(std::move(made));
  }

 private:
  // One rank's file of an item, opened.
  struct opened_part {
    std::int32_t rank = 0;
    std::size_t number = 0;
    bool is_flat = false;  // safetensors: keys are dotted
    std::unordered_map<std::string, std::size_t> tensors;
    std::unordered_set<std::size_t> described;  // those that the metadata speaks of
  };
  struct inner_box {
    std::size_t part = 0, tensor = 0;
    box where;
  };

  result<metadata> read_metadata() {
    file_pool pool(1);
    const fs::path file = path_ / metadata_file_name;
    SHARDMESH_TRY(const auto source, pool.open(file));
    if (source->size_bytes() > budget_.limits().description_bytes)
      return beyond_limit("the metadata is too long", budget_.limits().description_bytes).with_file(file.string());
    std::vector<std::byte> bytes(static_cast<std::size_t>(source->size_bytes()));
    SHARDMESH_CHECK(source->read(0, bytes));
    auto parsed = parse_metadata(std::move(bytes), budget_);
    if (!parsed) return std::move(parsed).error().with_file(file.string());
    return parsed;
  }

  result<void> add_item(const item_metadata& item, std::int32_t world_size) {
    std::vector<opened_part> parts;
    std::vector<std::int32_t> at(static_cast<std::size_t>(world_size), -1);  // rank -> position in `parts`
    std::set<std::int32_t> needed;
    for (const tensor_metadata& tensor : item.tensors)
      for (const sharding& group : tensor.groups) needed.insert(group.ranks.begin(), group.ranks.end());
    for (std::int32_t rank = 0; rank < world_size; ++rank) {
      const rank_file& file = item.files[static_cast<std::size_t>(rank)];
      std::error_code code;
      if (!fs::exists(path_ / file.name, code)) continue;
      if (file.how != payload::torch && file.how != payload::safetensors) {
        if (needed.contains(rank))
          return fail(errc::bad_format, "its metadata says that tensors lie in a file that can hold none")
              .with_key(item.key)
              .with_file((path_ / file.name).string());
        continue;
      }
      SHARDMESH_TRY(opened_part one, open_file(file, item.key, rank));
      at[static_cast<std::size_t>(rank)] = static_cast<std::int32_t>(parts.size());
      parts.push_back(std::move(one));
    }
    const std::size_t problems_before = problems_.size();
    for (const tensor_metadata& tensor : item.tensors) {
      if (problems_.size() >= most_problems) break;
      SHARDMESH_CHECK(add_described(item, tensor, parts, at));
    }
    if (problems_.size() == problems_before) warn_of_missing(item, needed, at);
    return add_rest(item.key, parts, &item);
  }

  // Ranks without a file, where everything was found in others'.
  void warn_of_missing(const item_metadata& item, const std::set<std::int32_t>& needed,
                       const std::vector<std::int32_t>& at) {
    for (const std::int32_t rank : needed)
      if (at[static_cast<std::size_t>(rank)] < 0)
        warnings_.push_back(
            fail(errc::bad_format, "the file is missing; what the metadata says of it was found in other ranks' files")
                .with_key(item.key)
                .with_file((path_ / item.files[static_cast<std::size_t>(rank)].name).string()));
  }

  result<opened_part> open_file(const rank_file& file, const std::string& key, std::int32_t rank) {
    SHARDMESH_CHECK(check_inside(file.name));
    const fs::path whole = path_ / file.name;
    opened_part made;
    made.rank = rank;
    made.is_flat = file.how == payload::safetensors;
    SHARDMESH_TRY(std::unique_ptr<checkpoint_reader> reader,
                  made.is_flat ? safetensors::open(whole, options_) : torch_file::open_part(whole, key, options_));
    const auto& tensors = reader->contents().tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      made.tensors.emplace(made.is_flat ? tensors[i].key : joined(tensors[i].where, 1), i);
    const std::string parent = fs::path(file.name).parent_path().string();
    made.number = add_part(std::move(reader), parent.empty() ? "" : parent + "/");
    return made;
  }

  // A link may not lead out of the folder.
  result<void> check_inside(const std::string& name) const {
    folder_files files(path_, {name}, file_pool(1));
    auto opened = files.open(0);
    if (!opened) return std::move(opened).error();
    return {};
  }

  struct holder {
    std::size_t part = 0, tensor = 0;
  };

  result<void> add_described(const item_metadata& item, const tensor_metadata& tensor, std::vector<opened_part>& parts,
                             const std::vector<std::int32_t>& at) {
    const sharding& first = tensor.groups.front();
    tensor_entry entry;
    entry.where = tree_path{item.key};
    for (const path_key& step : tensor.where) entry.where.push_back(step);
    entry.key = dotted(entry.where);
    entry.type = first.type;
    entry.shape = first.shape;
    const std::string name = item.files.empty() ? "" : joined(tensor.where, 0), flat = dotted(tensor.where);
    SHARDMESH_TRY(const bool is_opaque, add_opaque(entry, tensor, parts, at, name));
    if (is_opaque) return {};
    // Boxes that were met, and what still waits for a rank that has its file.
    std::map<box, std::optional<holder>> found;
    std::vector<std::pair<box, inner_box>> pieces;
    std::map<box, error> waiting;
    bool is_named = false;
    for (const sharding& group : tensor.groups)
      for (const std::int32_t rank : group.ranks) {
        SHARDMESH_CHECK(budget_.build(16));
        const std::vector<placed_box> boxes = group.boxes_of(rank);
        const std::int32_t position = at[static_cast<std::size_t>(rank)];
        opened_part* const part_of_rank = position < 0 ? nullptr : &parts[static_cast<std::size_t>(position)];
        std::optional<std::size_t> index;
        if (part_of_rank) {
          const auto stored = part_of_rank->tensors.find(part_of_rank->is_flat ? flat : name);
          if (stored != part_of_rank->tensors.end()) index = stored->second;
        }
        if (index) part_of_rank->described.insert(*index);
        if (index && !is_named && !part_of_rank->is_flat) {
          entry.where = part(part_of_rank->number).contents().tensors[*index].where;
          is_named = true;
        }
        const auto missing = [&] {
          error problem = fail(errc::bad_format, part_of_rank ? "the file lacks a tensor that the metadata names"
                                                              : "the file is missing, and no other rank holds this");
          return std::move(problem).with_key(entry.key).with_rank(rank).with_file(
              (path_ / item.files[static_cast<std::size_t>(rank)].name).string());
        };
        bool is_checked = false;
        for (const placed_box& one : boxes) {
          if (one.where.is_empty()) continue;
          if (const auto known = found.find(one.where); known != found.end()) {
            if (index && known->second) compare_replicas(entry, *known->second, {part_of_rank->number, *index});
            continue;
          }
          if (!index) {
            waiting.try_emplace(one.where, missing().with_box(one.where));
            continue;
          }
          if (!std::exchange(is_checked, true) && !check_local(entry, group, rank, boxes, *part_of_rank, *index)) {
            found.emplace(one.where, std::nullopt);
            continue;
          }
          found.emplace(one.where, holder{part_of_rank->number, *index});
          waiting.erase(one.where);
          pieces.push_back({one.where, {part_of_rank->number, *index, {one.local_offsets, one.where.sizes}}});
        }
        if (entry.shape.rank() > 0 && box::whole(entry.shape).is_empty() && index && pieces.empty())
          pieces.push_back({box::whole(entry.shape), {part_of_rank->number, *index, box::whole(entry.shape)}});
      }
    for (auto& [where, problem] : waiting) problems_.push_back(std::move(problem));
    SHARDMESH_CHECK(add_tensor(entry));
    for (const auto& [where, piece] : pieces) {
      auto done = add_chunk(where, {piece.part, piece.tensor,
                                    part(piece.part).contents().tensors[piece.tensor].first_chunk, 0, where.sizes});
      if (!done) {
        problems_.push_back(std::move(done).error());
        continue;
      }
      const tensor_entry& stored = part(piece.part).contents().tensors[piece.tensor];
      if (stored.shape != where.sizes)
        inner_boxes_.emplace(static_cast<std::int32_t>(contents_.chunk_places.size()) - 1, piece);
    }
    return {};
  }

  // A tensor of a representation of its own, which is not read as elements: that of the first rank. True when it is
  // one.
  result<bool> add_opaque(const tensor_entry& entry, const tensor_metadata& tensor, std::vector<opened_part>& parts,
                          const std::vector<std::int32_t>& at, const std::string& name) {
    bool is_added = false;
    for (const sharding& group : tensor.groups)
      for (const std::int32_t rank : group.ranks) {
        const std::int32_t position = at[static_cast<std::size_t>(rank)];
        if (position < 0 || parts[static_cast<std::size_t>(position)].is_flat) continue;
        opened_part& from = parts[static_cast<std::size_t>(position)];
        const auto found = from.tensors.find(name);
        if (found == from.tensors.end()) continue;
        const tensor_entry& stored = part(from.number).contents().tensors[found->second];
        if (stored.opaque_type.empty()) return is_added;
        from.described.insert(found->second);
        if (std::exchange(is_added, true)) continue;
        const std::vector<placed_box> boxes = group.boxes_of(rank);
        if (boxes.size() != 1 || boxes.front().where != box::whole(entry.shape))
          problems_.push_back(fail(errc::unsupported, fmt::format("a {} is no part of a tensor", stored.opaque_kind))
                                  .with_key(entry.key)
                                  .with_rank(rank)
                                  .with_file(part(from.number).path().string()));
        SHARDMESH_CHECK(add_whole_tensor(entry.key, stored.where, from.number, found->second));
      }
    return is_added;
  }

  // What lies in the file is what the metadata says of this rank.
  bool check_local(const tensor_entry& entry, const sharding& group, std::int32_t rank,
                   const std::vector<placed_box>& boxes, const opened_part& from, std::size_t index) {
    const checkpoint_reader& reader = part(from.number);
    const tensor_entry& stored = reader.contents().tensors[index];
    const auto refuse = [&](error problem) {
      problems_.push_back(std::move(problem).with_key(entry.key).with_rank(rank).with_file(reader.path().string()));
      return false;
    };
    if (stored.chunk_count != 1) return refuse(fail(errc::unsupported, "what the file holds is no part of a tensor"));
    if (stored.type != entry.type)
      return refuse(
          fail(errc::dtype_mismatch, "the metadata says another dtype than the file")
              .with_values(std::string(shardmesh::name(entry.type)), std::string(shardmesh::name(stored.type))));
    const auto expected = group.local_shape(rank);
    if (expected && *expected != stored.shape)
      return refuse(fail(errc::shape_mismatch, "the rank's part has another shape than the metadata says")
                        .with_values(to_string(*expected), to_string(stored.shape)));
    for (const placed_box& one : boxes)
      if (!lies_within({one.local_offsets, one.where.sizes}, box::whole(stored.shape)))
        return refuse(fail(errc::out_of_bounds, "a box lies outside of the rank's tensor")
                          .with_box({one.local_offsets, one.where.sizes})
                          .with_values(fmt::format("within {}", to_string(stored.shape)), ""));
    return true;
  }

  // Replicas that differ: the metadata says that one may stand for the other.
  void compare_replicas(const tensor_entry& entry, const holder& a, const holder& b) {
    checkpoint_reader &left = part(a.part), &right = part(b.part);
    const auto same =
        same_by_checksum(left, left.contents().tensors[a.tensor], right, right.contents().tensors[b.tensor]);
    if (!same || !*same || **same || !differing_.insert(entry.key).second) return;
    warnings_.push_back(fail(errc::checksum_mismatch,
                             fmt::format("differs from what {} holds, though the metadata says that they are copies; "
                                         "the latter is read",
                                         left.path().filename().string()))
                            .with_key(entry.key)
                            .with_file(right.path().string()));
  }

  result<void> add_stray(const std::string& key, const std::map<std::int32_t, std::string>& files,
                         std::int32_t world_size) {
    std::vector<opened_part> parts;
    for (const auto& [rank, name] : files) {
      if (rank >= world_size) {
        warnings_.push_back(fail(errc::bad_format, fmt::format("is a file of rank {} beside metadata of {} ranks: a "
                                                               "leftover of another save, which is not read",
                                                               rank, world_size))
                                .with_file((path_ / name).string()));
        continue;
      }
      SHARDMESH_TRY(opened_part one, open_file({name, payload::torch}, key, rank));
      parts.push_back(std::move(one));
    }
    return add_rest(key, parts);
  }

  // Where an entry lies in ranks' files.
  struct occurrence {
    std::int32_t rank = 0;
    std::size_t part = 0, index = 0;
    bool is_tensor = false;
  };

  // What the metadata says nothing of: one entry where the ranks agree, else one for each.
  result<void> add_rest(const std::string& key, const std::vector<opened_part>& parts,
                        const item_metadata* item = nullptr) {
    const std::unordered_set<std::string> positions = item ? list_positions(*item) : std::unordered_set<std::string>();
    std::vector<std::string> order;
    std::map<std::string, std::vector<occurrence>> entries;
    const auto meet = [&](const tree_path& where, const occurrence& one) {
      const auto [found, is_new] = entries.try_emplace(joined(where, 0));
      if (is_new) order.push_back(found->first);
      found->second.push_back(one);
    };
    for (const opened_part& one : parts) {
      const catalog& contents = part(one.number).contents();
      for (std::size_t i = 0; i < contents.tensors.size(); ++i)
        if (!one.described.contains(i)) meet(where_of(contents.tensors[i], one, key), {one.rank, one.number, i, true});
      for (std::size_t i = 0; i < contents.objects.size(); ++i) {
        if (!positions.empty() && positions.contains(joined(contents.objects[i].where, 1))) {
          SHARDMESH_TRY(const object_value value, part(one.number).read_object(i));
          if (value.kind == "none") continue;
        }
        meet(contents.objects[i].where, {one.rank, one.number, i, false});
      }
    }
    for (const std::string& name : order) {
      const std::vector<occurrence>& found = entries.at(name);
      bool same = true;
      for (std::size_t i = 1; i < found.size() && same; ++i) {
        SHARDMESH_TRY(same, is_same(found[0], found[i]));
      }
      const tree_path where = where_of(found[0], key);
      if (same) {
        SHARDMESH_CHECK(add_one(found[0], where));
        continue;
      }
      notes_.push_back(fmt::format("{} differs between ranks: it is seen as {}.rank_{} and so on", dotted(where),
                                   dotted(where), found[0].rank));
      for (const occurrence& one : found) {
        tree_path of_rank = where;
        of_rank.push_back(fmt::format("rank_{}", one.rank));
        SHARDMESH_CHECK(add_one(one, of_rank));
      }
    }
    return {};
  }

  // Positions of lists at or above the tensors that the metadata describes: None there is where a rank has no part.
  static std::unordered_set<std::string> list_positions(const item_metadata& item) {
    std::unordered_set<std::string> positions;
    for (const tensor_metadata& tensor : item.tensors) {
      tree_path above;
      for (const path_key& step : tensor.where) {
        above.push_back(step);
        if (step.is_index()) positions.insert(joined(above, 0));
      }
    }
    return positions;
  }

  static tree_path where_of(const tensor_entry& tensor, const opened_part& from, const std::string& key) {
    return from.is_flat ? tree_path{key, tensor.key} : tensor.where;
  }
  tree_path where_of(const occurrence& one, const std::string& key) {
    const catalog& contents = part(one.part).contents();
    if (!one.is_tensor) return contents.objects[one.index].where;
    const tensor_entry& tensor = contents.tensors[one.index];
    return contents.format == checkpoint_format::safetensors ? tree_path{key, tensor.key} : tensor.where;
  }

  result<bool> is_same(const occurrence& a, const occurrence& b) {
    if (a.is_tensor != b.is_tensor) return false;
    checkpoint_reader &left = part(a.part), &right = part(b.part);
    if (!a.is_tensor) return same_object(left, a.index, right, b.index);
    return same_tensor(left, left.contents().tensors[a.index], right, right.contents().tensors[b.index]);
  }

  result<void> add_one(const occurrence& one, const tree_path& where) {
    if (one.is_tensor) return add_whole_tensor(dotted(where), where, one.part, one.index);
    return add_object(dotted(where), where, one.part, one.index);
  }

  error located(error problem) const {
    return problem.file.empty() ? std::move(problem).with_file((path_ / metadata_file_name).string()) : problem;
  }

  open_options options_;
  read_budget budget_;
  std::unordered_map<std::int32_t, inner_box> inner_boxes_;  // chunks that are a box of their file's tensor
  std::unordered_set<std::string> differing_;
};

}  // namespace

bool is_folder(const fs::path& folder) {
  std::error_code code;
  return fs::is_regular_file(folder / metadata_file_name, code);
}

result<std::unique_ptr<checkpoint_reader>> open(const fs::path& folder, const open_options& options) {
  auto reader = std::make_unique<folder_reader>(folder, options);
  SHARDMESH_CHECK(reader->open());
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

}  // namespace shardmesh::torch_checkpointing
