// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.collective_checkpoint;

import shardmesh.checkpoint_core;
import :request_match;

namespace shardmesh {
namespace {

class matching {
 public:
  matching(merged_state& all, const checkpoint_reader& reader, const rank_load_options& options)
      : all_(all),
        reader_(reader),
        contents_(reader.contents()),
        options_(options),
        problems_(std::move(all.problems)) {}

  result<request_match> run() && {
    for (const merged_tensor& wanted : all_.tensors) {
      asked_.insert(wanted.key);
      const tensor_entry* const found = contents_.find(wanted.key);
      made_.is_there.push_back(found != nullptr);
      if (found)
        match_tensor(wanted, *found);
      else
        miss(wanted.key, wanted.ranks.front(), entry_kind::tensor);
    }
    for (const merged_object& wanted : all_.objects) {
      asked_.insert(wanted.key);
      const object_entry* const found = contents_.find_object(wanted.key);
      made_.stored_objects.push_back(found ? found - contents_.objects.data() : -1);
      if (!found)
        miss(wanted.key, wanted.ranks.front(), entry_kind::object);
      else
        made_.report.loaded.push_back(wanted.key);
    }
    for (const tensor_entry& tensor : contents_.tensors) find_surplus(tensor.key);
    for (const object_entry& object : contents_.objects) find_surplus(object.key);
    SHARDMESH_TRY(std::move(problems_).outcome());
    return std::move(made_);
  }

 private:
  void match_tensor(const merged_tensor& wanted, const tensor_entry& stored) {
    if (stored.shape != wanted.shape)
      return problems_.add(fail(errc::shape_mismatch, "the requested tensor has a different shape than the stored one")
                               .with_key(wanted.key)
                               .with_rank(wanted.ranks.front())
                               .with_values(to_string(stored.shape), to_string(wanted.shape)));
    if (auto cast = check_cast(stored.type, wanted.type, options_.allow_narrowing); !cast)
      return problems_.add(std::move(cast).error().with_key(wanted.key).with_rank(wanted.ranks.front()));
    if (stored.type != wanted.type) made_.report.casts.push_back({wanted.key, stored.type, wanted.type});
    made_.report.loaded.push_back(wanted.key);
  }

  void miss(const std::string& key, std::int32_t rank, entry_kind wanted) {
    const bool is_other_kind = contents_.find(key) || contents_.find_object(key);
    if (!is_other_kind) made_.report.missing.push_back(key);
    if (is_other_kind || options_.missing == key_check::strict)
      problems_.add(no_such_entry(reader_, key, wanted, problems_.named.size() < most_suggestions).with_rank(rank));
  }

  void find_surplus(const std::string& key) {
    if (asked_.contains(key)) return;
    made_.report.unexpected.push_back(key);
    if (options_.unexpected == key_check::strict)
      problems_.add(fail(errc::missing_key, "the checkpoint has this entry, but no rank requests it")
                        .with_file(reader_.path().string())
                        .with_key(key));
  }

  const merged_state& all_;
  const checkpoint_reader& reader_;
  const catalog& contents_;
  const rank_load_options& options_;
  detail::problem_list problems_;
  std::unordered_set<std::string_view> asked_;
  request_match made_;
};

}  // namespace

result<request_match> match_requests(merged_state& all, const checkpoint_reader& reader,
                                     const rank_load_options& options) {
  return matching(all, reader, options).run();
}

}  // namespace shardmesh
