// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.torch_checkpointing;

import shardmesh.safetensors;
import :folder_plan;

namespace shardmesh::torch_checkpointing {
namespace {

constexpr std::size_t longest_name = 200, many_items = 16;
constexpr std::size_t small_object_bytes = std::size_t{1} << 20;  // larger ones are in rank 0's file only

path place_of(const path& where, const std::string& key) {
  return where.empty() ? path{key} : where;
}

path below_first(const path& where) {
  path rest;
  for (std::size_t i = 1; i < where.size(); ++i) rest.push_back(where[i]);
  return rest;
}

// Returns true when "ITEM_RANK.pt" is a visible file inside the folder.
bool is_file_name(std::string_view item) {
  // The checksum record escapes names as messages do, so escaped names are refused.
  return escaped(item) == item && !item.empty() && item.size() <= longest_name && item.front() != '.' &&
         std::all_of(item.begin(), item.end(), [](char c) { return c != '/' && c != '\\' && c != '\0'; });
}

// Formats a key of the root for people: "1" is text, 1 is an integer.
std::string described(const path_key& key) {
  const bool is_text = !key.is_index() && !key.is_integer() && !key.is_python();
  return is_text ? fmt::format("\"{}\"", escaped(key.name())) : escaped(key_text(key));
}

struct planned_item {
  std::string key;
  path_key named_by;
  std::string stem;
  std::vector<std::pair<std::size_t, path>> tensors, objects;  // with their paths below the item
};

class planning {
 public:
  planning(std::span<const output_tensor> tensors, std::span<const output_object> objects, const folder_options& format)
      : tensors_(tensors), objects_(objects), format_(format) {}

  result<folder_plan> run() {
    if (format_.files != payload::torch && format_.files != payload::safetensors)
      return fail(errc::unsupported, "tensors can only be written as files of torch.save or safetensors");
    SHARDMESH_TRY(group());
    SHARDMESH_TRY(cut());
    made_.described.version = "2.0";
    made_.described.world_size = world_;
    for (const planned_item& item : items_) SHARDMESH_TRY(add_item(item));
    add_notes();
    return std::move(made_);
  }

 private:
  result<void> group() {
    std::map<std::string, std::size_t, std::less<>> positions;
    std::set<std::string> names;
    const auto add = [&](const path& where, const std::string& key) -> result<std::pair<planned_item*, path>> {
      path whole;
      if (!format_.item.empty()) whole.push_back(format_.item);
      whole.append(place_of(where, key));
      if (!names.insert(dotted(whole)).second)
        return fail(errc::duplicate_key, "two entries have the same name").with_key(dotted(whole));
      const std::string item = key_text(whole[0]);
      const auto [found, is_new] = positions.try_emplace(item, items_.size());
      if (is_new) items_.push_back({item, whole[0], "", {}, {}});
      if (items_[found->second].named_by != whole[0])
        return fail(errc::unsupported,
                    fmt::format("two keys of the root, {} and {}, would be one item {}, as items "
                                "have names",
                                described(items_[found->second].named_by), described(whole[0]), escaped(item)))
            .with_key(key)
            .with_hint("pass item to put everything below one item");
      if (is_new && (whole[0].is_index() || whole[0].is_integer() || whole[0].is_python())) renamed_.push_back(item);
      return std::pair(&items_[found->second], below_first(whole));
    };
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      SHARDMESH_TRY(auto place, add(tensors_[i].where, tensors_[i].key));
      place.first->tensors.emplace_back(i, std::move(place.second));
    }
    for (std::size_t i = 0; i < objects_.size(); ++i) {
      SHARDMESH_TRY(auto place, add(objects_[i].where, objects_[i].key));
      place.first->objects.emplace_back(i, std::move(place.second));
    }
    for (planned_item& item : items_) {
      item.stem = item.key;
      for (std::size_t n = 0; !is_file_name(item.stem) || (n > 0 && positions.contains(item.stem)); ++n)
        item.stem = fmt::format("item_{}_{}", &item - items_.data(), n);
    }
    return {};
  }

  result<void> cut() {
    cuts_.resize(tensors_.size());
    std::int32_t highest = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const output_tensor& tensor = tensors_[i];
      for (const path_key& step : tensor.where)
        if (!step.is_index() && !is_utf8(step.name()))
          return fail(errc::unsupported, "the metadata cannot hold a name that is not UTF-8").with_key(tensor.key);
      if (tensor.archive) {
        SHARDMESH_TRY(check_rank(tensor, tensor.chunks.front().rank));
        highest = std::max(highest, tensor.chunks.front().rank);
        continue;
      }
      auto cut = sharding_of_chunks(tensor.bytes.from.global_shape(), tensor.type, tensor.chunks);
      if (!cut) return std::move(cut).error().with_key(tensor.key);
      cuts_[i] = *std::move(cut);
      SHARDMESH_TRY(check_rank(tensor, cuts_[i].parts.back().rank));
      highest = std::max(highest, cuts_[i].parts.back().rank);
      if (cuts_[i].is_gathered) gathered_.push_back(tensor.key);
      if (!cuts_[i].groups.front().laid_out) boxed_.push_back(tensor.key);
    }
    world_ = highest + 1;
    return {};
  }

  // Each item has a file for each rank. A number of a rank may come from the name of a file that was read.
  static result<void> check_rank(const output_tensor& tensor, std::int32_t rank) {
    if (rank < max_ranks) return {};
    return fail(errc::unsupported, "a part belongs to a rank that is too large for this format")
        .with_key(tensor.key)
        .with_values(fmt::format("below {}", max_ranks), fmt::format("{}", rank));
  }

  // Returns the reason why safetensors cannot hold an item; empty when it can.
  std::string obstacle(const planned_item& item) const {
    if (!item.objects.empty())
      return fmt::format("{} is not a tensor", escaped(objects_[item.objects.front().first].key));
    std::vector<safetensors::tensor> described;
    for (const auto& [i, where] : item.tensors) {
      if (tensors_[i].archive || where.empty())
        return fmt::format("{} cannot be stored there", escaped(tensors_[i].key));
      described.push_back({dotted(where), tensors_[i].type, cuts_[i].parts.front().where.sizes});
    }
    const std::vector<error> problems = safetensors::problems_of(described);
    return problems.empty() ? "" : fmt::format("{}: {}", escaped(problems.front().key), problems.front().message);
  }

  result<void> add_item(const planned_item& item) {
    payload how = format_.files;
    if (how == payload::safetensors)
      if (const std::string why = obstacle(item); !why.empty()) {
        how = payload::torch;
        made_.notes.push_back(fmt::format("{} is written as files of torch.save: {}", escaped(item.key), why));
      }
    const std::size_t first = made_.files.size();
    for (std::int32_t rank = 0; rank < world_; ++rank)
      made_.files.push_back(
          {fmt::format("{}_{}.{}", item.stem, rank, how == payload::torch ? "pt" : "safetensors"), how, {}, {}});
    const std::span files = std::span(made_.files).subspan(first);
    item_metadata described{item.key, {}, {}};
    for (const auto& [i, where] : item.tensors) add_tensor(i, where, files, described);
    for (const auto& [i, where] : item.objects) SHARDMESH_TRY(add_object(i, where, files));
    for (const planned_file& file : files) described.files.push_back({file.name, file.how});
    const bool has_own_names = item.stem == item.key && how == payload::torch;
    if (!described.tensors.empty() || !has_own_names) made_.described.items.push_back(std::move(described));
    return {};
  }

  // Adds an object to every rank's file, as the package does, as long as it is small.
  result<void> add_object(std::size_t i, const path& where, std::span<planned_file> files) {
    const output_object& object = objects_[i];
    torch_file::state_entry entry{object.key, where, dtype::undefined, {}, object.archive};
    if (files.size() > 1) {
      auto bytes = object.archive();
      if (!bytes) return std::move(bytes).error().with_key(object.key);
      if (bytes->size() > small_object_bytes) {
        large_.push_back(object.key);
        files = files.first(1);
      } else {
        entry.archive = [held = std::make_shared<const std::vector<std::byte>>(*std::move(bytes))] {
          return result<std::vector<std::byte>>(*held);
        };
      }
    }
    for (planned_file& file : files) file.entries.push_back(entry);
    return {};
  }

  void add_tensor(std::size_t i, const path& where, std::span<planned_file> files, item_metadata& described) {
    const output_tensor& tensor = tensors_[i];
    if (files.front().how == payload::safetensors && std::any_of(where.begin(), where.end(), [](const path_key& step) {
          return step.is_integer() || step.is_python();
        }))
      flat_.push_back(tensor.key);
    if (tensor.archive) {
      files[static_cast<std::size_t>(tensor.chunks.front().rank)].entries.push_back(
          {tensor.key, where, tensor.type, {}, tensor.archive});
      return;
    }
    for (const rank_box& part : cuts_[i].parts) {
      planned_file& file = files[static_cast<std::size_t>(part.rank)];
      file.parts.push_back({i, part.where, file.entries.size()});
      file.entries.push_back({tensor.key, where, tensor.type, part.where.sizes, {}});
    }
    described.tensors.push_back({where, std::move(cuts_[i].groups)});
  }

  static std::string first_of(const std::vector<std::string>& keys) {
    return escaped(keys.front()) + (keys.size() == 1 ? "" : fmt::format(" and {} more", keys.size() - 1));
  }

  void add_notes() {
    if (!renamed_.empty())
      made_.notes.push_back(fmt::format("{} {} of the root that {} not text become{} {} of items: {}", renamed_.size(),
                                        renamed_.size() == 1 ? "key" : "keys", renamed_.size() == 1 ? "is" : "are",
                                        renamed_.size() == 1 ? "s" : "", renamed_.size() == 1 ? "the name" : "names",
                                        name_list(renamed_)));
    if (!flat_.empty())
      made_.notes.push_back(
          fmt::format("{}: keys that are not text become text in files of safetensors: an optimizer's load_state_dict "
                      "drops the state below such keys",
                      name_list(flat_)));
    if (!gathered_.empty())
      made_.notes.push_back(
          fmt::format("{}: the boxes of one rank do not form one box, so one rank's file has the whole tensor",
                      first_of(gathered_)));
    if (!boxed_.empty())
      made_.notes.push_back(fmt::format(
          "{}: cut in a way that no mesh cuts, so the metadata lists boxes, which the package's DefaultResharder does "
          "not place",
          first_of(boxed_)));
    if (!large_.empty())
      made_.notes.push_back(fmt::format("{}: larger than {}, so only rank 0's file has it", first_of(large_),
                                        human_bytes(static_cast<std::int64_t>(small_object_bytes))));
    const auto alone = std::count_if(items_.begin(), items_.end(), [](const planned_item& item) {
      return item.tensors.size() == 1 && item.tensors.front().second.empty();
    });
    if (static_cast<std::size_t>(alone) > many_items)
      made_.notes.push_back(
          fmt::format("{} own, each with a file for every rank: pass --item to put all below one",
                      detail::counted(alone, "tensor is an item of its", "tensors are items of their")));
  }

  std::span<const output_tensor> tensors_;
  std::span<const output_object> objects_;
  const folder_options& format_;
  std::vector<planned_item> items_;
  std::vector<chunk_sharding> cuts_;                          // one per tensor
  std::vector<std::string> gathered_, boxed_, large_, flat_;  // keys
  std::vector<std::string> renamed_;                          // items
  std::int32_t world_ = 1;
  folder_plan made_;
};

}  // namespace

result<folder_plan> plan_folder(std::span<const output_tensor> tensors, std::span<const output_object> objects,
                                const folder_options& format) {
  return planning(tensors, objects, format).run();
}

}  // namespace shardmesh::torch_checkpointing
