// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :size_sources;

namespace shardmesh {
namespace {

// Names that are followed from one tensor. Real mappings have a few; an untrusted one could have a long chain.
constexpr std::size_t most_followed = 64;

// Follows names through the mapping's sizes to the numbers that the user or the configuration gives.
class origin_finder {
 public:
  origin_finder(const mapping_rules& mapping, const model_sizes& sizes) : mapping_(mapping), sizes_(sizes) {}

  void follow(const std::string& name) {
    if (seen_.size() == most_followed || std::find(seen_.begin(), seen_.end(), name) != seen_.end()) return;
    seen_.push_back(name);
    if (const auto found = sizes_.given.find(name); found != sizes_.given.end())
      return given_.push_back(fmt::format("{} = {}", name, found->second));
    for (const auto* list : {&mapping_.sizes, &mapping_.captures})
      for (const named_expression& one : *list)
        if (one.name == name) {
          for (const std::string& inner : one.value.names())
            if (inner == name)
              add_config(name);
            else
              follow(inner);
          return;
        }
    add_config(name);
  }

  std::string text() const {
    std::string made;
    if (!config_.empty()) made += fmt::format(", from {} of the configuration", name_list(config_));
    if (!given_.empty()) made += fmt::format("{} {} as given", config_.empty() ? ", with" : " and", name_list(given_));
    return made;
  }

 private:
  void add_config(const std::string& name) {
    const auto found = sizes_.config.find(name);
    if (found != sizes_.config.end()) config_.push_back(fmt::format("{} = {}", name, found->second));
  }

  const mapping_rules& mapping_;
  const model_sizes& sizes_;
  std::vector<std::string> seen_, config_, given_;
};

}  // namespace

std::string size_sources(const index_tensor& tensor, const named_sizes& values, const mapping_rules& mapping,
                         const model_sizes& sizes) {
  std::vector<std::string> names, texts;
  origin_finder origins(mapping, sizes);
  const auto add = [&](const index_factor& factor) {
    const auto found = values.find(factor.name);
    if (found == values.end() || std::find(names.begin(), names.end(), factor.name) != names.end()) return;
    names.push_back(factor.name);
    texts.push_back(fmt::format("{} = {}", factor.name, found->second));
    origins.follow(factor.name);
  };
  for (const std::vector<index_term>& dimension : tensor.dimensions)
    for (const index_term& term : dimension) {
      if (term.segments.empty()) add(term.factor);
      for (const index_segment& segment : term.segments)
        for (const index_factor& factor : segment.factors) add(factor);
    }
  return texts.empty() ? std::string() : name_list(texts) + origins.text();
}

}  // namespace shardmesh
