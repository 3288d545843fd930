// SPDX-License-Identifier: Apache-2.0
// shared_library: a library that is loaded when it is needed, and stays for the rest of the process. Not here: what is
// called in it (functions).
export module shardmesh.cuda:shared_library;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh::cuda {

/// A library of the system's loader. Copies name the same one. It is never unloaded: drivers keep threads in theirs,
/// and memory is given back to it by whoever goes last.
class shared_library {
 public:
  shared_library() = default;

  /// The library at `path`; without one, at the path that the environment variable holds, if it is set; without that,
  /// the first of `names` that the loader finds.
  /// \param what  for errors: "the CUDA runtime"
  /// \errors errc::unsupported with what was tried and what the loader says
  static result<shared_library> open(std::string_view what, const std::string& path, const char* variable,
                                     std::initializer_list<const char*> names);

  /// Where it was found: a path or a name.
  const std::string& name() const { return name_; }
  bool is_open() const { return handle_ != nullptr; }

  /// Sets `function` to the library's function of that name; null when it has none.
  template <class Function>
  bool find(const char* function_name, Function*& function) const {
    function = reinterpret_cast<Function*>(address_of(function_name));
    return function != nullptr;
  }

 private:
  void* address_of(const char* function_name) const;
  std::string name_;
  void* handle_ = nullptr;
};

/// Fills a table: the functions that a library must have, one after the other.
class function_loader {
 public:
  explicit function_loader(const shared_library& library) : library_(library) {}
  template <class Function>
  void operator()(const char* name, Function*& function) {
    if (!library_.find(name, function) && missing_.empty()) missing_ = name;
  }
  /// errc::unsupported naming the library and the first function that it lacks.
  result<void> outcome() const;

 private:
  const shared_library& library_;
  std::string missing_;
};

}  // namespace shardmesh::cuda
