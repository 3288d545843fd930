// SPDX-License-Identifier: Apache-2.0
// shared_library: a library that is loaded when it is needed, and stays loaded for the rest of the process. The tables
// of its functions are in functions.
export module shardmesh.cuda:shared_library;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh::cuda {

/// A library loaded by the system's loader. Copies refer to the same library. It is never unloaded: drivers have
/// running threads in their libraries, and the last owner of memory may free it through the library at any time.
class shared_library {
 public:
  shared_library() = default;

  /// Loads the library at `path`. If `path` is empty, loads the one whose path is in the environment variable; if that
  /// is not set, the first of `names` that the loader finds.
  /// \param what  the library's name in errors: "the CUDA runtime"
  /// \errors errc::unsupported with the names tried and the loader's messages
  static result<shared_library> open(std::string_view what, const std::string& path, const char* variable,
                                     std::initializer_list<const char*> names);

  /// Returns the path or name under which the library was found.
  const std::string& name() const { return name_; }
  /// Returns the path of the loaded file; `name()` if the loader does not know it.
  std::string file() const;
  bool is_open() const { return handle_ != nullptr; }

  /// Returns the folder of the program or shared library that contains this code; empty if the loader does not know.
  static std::string own_folder();

  /// Sets `function` to the library's function of that name, or to null. Returns whether there is one.
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

/// A loader of the functions that a library must have, one after the other, into a table.
class function_loader {
 public:
  explicit function_loader(const shared_library& library) : library_(library) {}
  template <class Function>
  void operator()(const char* name, Function*& function) {
    if (!library_.find(name, function) && missing_.empty()) missing_ = name;
  }
  /// Returns success, or errc::unsupported naming the library and the first function that it lacks.
  result<void> outcome() const;

 private:
  const shared_library& library_;
  std::string missing_;
};

}  // namespace shardmesh::cuda
