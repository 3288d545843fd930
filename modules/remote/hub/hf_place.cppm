// SPDX-License-Identifier: Apache-2.0
// hf_place: a URL of the scheme hf, in parts. Internal to `remote`.
module shardmesh.remote:hf_place;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::remote {

struct hf_place {
  std::string repository;  // "owner/name", or "name"
  std::string revision;    // as the user gave it; "main" by default
  std::string path;        // without slashes at its ends; empty for the repository's root

  std::string folder() const;     // the path without its last part
  std::string last_name() const;  // the path's last part, or the repository's name
};

// Parses a URL. `is_ownerless` tells which names are known to be repositories without an owner: below them,
// "hf://gpt2/config.json" is a file and not the repository "config.json" of an owner "gpt2".
// \errors errc::invalid_argument, errc::unsupported for datasets and spaces
result<hf_place> parse_hf_place(std::string_view url, function_ref<bool(const std::string& name)> is_ownerless);

}  // namespace shardmesh::remote
