// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <string>
module shardmesh.checkpoint_core;

namespace shardmesh {

struct file_maps::state {
  std::mutex lock;
  std::map<std::string, std::shared_ptr<const mapped_file>> files;  // by path
};

file_maps::file_maps() : state_(std::make_unique<state>()) {}
file_maps::~file_maps() = default;

result<std::shared_ptr<const mapped_file>> file_maps::open(const std::string& path) {
  const std::scoped_lock guard(state_->lock);
  if (const auto known = state_->files.find(path); known != state_->files.end()) return known->second;
  SHARDMESH_TRY(auto mapped, mapped_file::open(path));
  state_->files.emplace(path, mapped);
  return mapped;
}

}  // namespace shardmesh
