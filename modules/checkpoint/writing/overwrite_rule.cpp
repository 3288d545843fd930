// SPDX-License-Identifier: Apache-2.0
module;
#include <re2/re2.h>
#include <sys/stat.h>
#include <shardmesh/try.hpp>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.dcp;
import shardmesh.safetensors;
import :overwrite_rule;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

// The entries of a folder that no part of a checkpoint has claimed yet.
class claims {
 public:
  claims(const fs::path& folder, const destination_snapshot& seen) : folder_(folder) {
    for (const auto& [name, identity] : seen.entries) unclaimed_.insert(name);
  }

  void claim(std::string_view name) {
    if (const auto found = unclaimed_.find(name); found != unclaimed_.end()) unclaimed_.erase(found);
  }
  bool done() const { return unclaimed_.empty(); }
  // "config.json, model.pt and 3 more"
  std::string names() const { return name_list(std::vector<std::string>(unclaimed_.begin(), unclaimed_.end())); }

  // Claims the files that shardmesh wrote: all of its record.
  void by_record() {
    if (!unclaimed_.contains(checksum_file_name)) return;
    claim(checksum_file_name);
    const auto recorded = recorded_files(folder_);
    has_list_ = !recorded.empty();
    for (const std::string& file : recorded) claim(file);
  }

  // Claims torch.distributed.checkpoint's own names, and the files that the metadata names.
  void by_dcp() {
    static const re2::RE2 name(R"(\.metadata|\.metadata\.tmp|__[0-9]+\.metadata|__[0-9]+_[0-9]+\.distcp)");
    const bool has_metadata = unclaimed_.contains(".metadata");
    claim_matching(name);
    if (!has_metadata || done()) return;
    if (const auto reader = dcp::open(folder_))
      for (const std::string& file : (*reader)->contents().files) claim(file);
  }

  // Claims the files of the index, if there is exactly one.
  void by_index() {
    std::vector<std::string> indices;
    for (const std::string& name : unclaimed_)
      if (name.ends_with(".safetensors.index.json")) indices.push_back(name);
    if (indices.size() != 1) return;
    file_pool pool(1);
    const auto source = pool.open(folder_ / indices.front());
    if (!source) return;
    const auto index = safetensors::parse_hf_index(**source);
    if (!index) return;
    has_list_ = true;
    claim(indices.front());
    for (const auto& [tensor, file] : index->weight_map) claim(file);
  }

  // Without a list of files: claims one file with a usual model name, or the numbered files of one series.
  void by_name() {
    static const re2::RE2 whole(R"((?:model|adapter_model|diffusion_pytorch_model)\.safetensors)");
    static const re2::RE2 numbered(R"((?s)(.*)-[0-9]{5}-of-([0-9]{5})\.safetensors)");
    static const re2::RE2 sharded(R"(shard-[0-9]{5}-(model)-[0-9]{5}-of-([0-9]{5})\.safetensors)");
    if (has_list_) return;
    std::vector<std::string> files;
    std::set<std::string> series;
    for (const std::string& name : unclaimed_) {
      if (!name.ends_with(".safetensors")) continue;
      files.push_back(name);
      std::string stem, count;
      if (re2::RE2::FullMatch(name, sharded, &stem, &count))
        series.insert("sharded " + count);
      else if (re2::RE2::FullMatch(name, numbered, &stem, &count))
        series.insert("numbered " + count + stem);
      else
        series.insert("alone " + name);
    }
    if (series.size() != 1) return;
    if (series.begin()->starts_with("alone ") && !re2::RE2::FullMatch(files.front(), whole)) return;
    for (const std::string& name : files) claim(name);
  }

  // Claims our file of objects, whole or damaged, but not another program's file of that name.
  void by_objects() {
    if (!unclaimed_.contains("objects.json")) return;
    if (safetensors::is_objects_file(folder_ / "objects.json")) claim("objects.json");
  }

 private:
  void claim_matching(const re2::RE2& pattern) {
    std::erase_if(unclaimed_, [&](const std::string& name) { return re2::RE2::FullMatch(name, pattern); });
  }

  const fs::path& folder_;
  std::set<std::string, std::less<>> unclaimed_;
  bool has_list_ = false;
};

}  // namespace

result<void> holds_one_checkpoint(const fs::path& folder, const destination_snapshot& seen) {
  std::vector<std::string> others;
  for (const auto& [name, identity] : seen.entries)
    if (identity.kind != S_IFREG && identity.kind != S_IFLNK)
      others.push_back(identity.kind == S_IFDIR ? name + "/" : name);
  if (!others.empty()) return holds_more(folder, name_list(others));
  claims left(folder, seen);
  left.by_record();
  if (!left.done()) left.by_index();
  if (!left.done()) left.by_dcp();
  if (!left.done()) left.by_name();
  if (!left.done()) left.by_objects();
  if (!left.done()) return holds_more(folder, left.names());
  return {};
}

save_options replacing_checkpoints(save_options options) {
  if (!options.hooks.may_replace) options.hooks.may_replace = holds_one_checkpoint;
  return options;
}

}  // namespace shardmesh
