// SPDX-License-Identifier: Apache-2.0
// environment: the variables that choose credentials, regions, and endpoints, as a value.
export module shardmesh.remote:environment;

import shardmesh.std;
import :secret;

export namespace shardmesh::remote {

/// A copy of environment variables, so that a refresh in another thread does not read the process's.
class environment {
 public:
  environment() = default;

  void set(std::string_view name, std::string_view value) { values_[std::string(name)] = secret(value); }
  /// Returns the value, or "" for a variable that is not set. An empty variable counts as one that is not set, as in
  /// the AWS tools. The view is valid until the variable is set or the object is destroyed.
  std::string_view variable(std::string_view name) const noexcept;

  /// Returns a path in which a leading "~" is replaced by the variable HOME.
  std::filesystem::path expanded(std::string_view path) const;
  /// Returns the text of a path for messages: "~" stands for the home folder.
  std::string shown(const std::filesystem::path& path) const;

 private:
  std::map<std::string, secret, std::less<>> values_;
};

/// Copies the variables of this process that room remote uses: HOME, XDG_CACHE_HOME, and all whose names begin with
/// AWS_, HF_, HUGGING_FACE_, or SHARDMESH_S3_. Without HOME, the home folder of the user account is set as HOME.
/// Precondition: no other thread changes the environment during the call.
environment process_environment();

}  // namespace shardmesh::remote
