// SPDX-License-Identifier: Apache-2.0
// The consumer's own module: it includes standard headers, like any module, and imports shardmesh.
module;
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>
export module consumer.trainer;

import shardmesh;
import shardmesh.state;
import shardmesh.tree;

export namespace consumer {

class trainer {
 public:
  using setting = std::variant<std::int64_t, std::string>;

  trainer(std::map<std::string, setting> settings, const shardmesh::extents& shape)
      : settings_(std::move(settings)),
        weight_(std::make_shared<shardmesh::host_tensor>(
            shardmesh::host_tensor::make(shardmesh::dtype::float32, shape).value())) {}

  bool operator==(const trainer& other) const { return settings_ == other.settings_ && weight_ == other.weight_; }
  shardmesh::state_dict<shardmesh::host_tensor> state() const {
    shardmesh::state_dict<shardmesh::host_tensor> made;
    made.set({"weight"}, weight_->clone().value()).value();
    return made;
  }
  void each_setting(const std::function<void(const std::string&)>& visit) const {
    for (const auto& [key, value] : settings_) visit(key);
  }

 private:
  std::map<std::string, setting> settings_;
  std::shared_ptr<shardmesh::host_tensor> weight_;
};

}  // namespace consumer
