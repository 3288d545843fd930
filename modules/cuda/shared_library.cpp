// SPDX-License-Identifier: Apache-2.0
module;
#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <system_error>
module shardmesh.cuda;

namespace shardmesh::cuda {

result<shared_library> shared_library::open(std::string_view what, const std::string& path, const char* variable,
                                            std::initializer_list<const char*> names) {
  shared_library made;
  std::string tried, reasons;
  const auto attempt = [&](const std::string& name) {
    made.handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (made.handle_ != nullptr) return made.name_ = name, true;
    const char* const reason = ::dlerror();
    tried += (tried.empty() ? "" : ", ") + name;
    reasons += (reasons.empty() ? "" : "; ") + std::string(reason != nullptr ? reason : "no reason given");
    return false;
  };
  const char* const chosen = std::getenv(variable);
  if (!path.empty()) {
    if (attempt(path)) return made;
  } else if (chosen != nullptr && *chosen != '\0') {
    if (attempt(chosen)) return made;
  } else {
    for (const char* const name : names)
      if (attempt(name)) return made;
  }
  return fail(errc::unsupported, std::string(what) + " cannot be loaded (" + reasons + ")")
      .with_values("a library named by an option, by " + std::string(variable) + ", or on the loader's path", tried);
}

std::string shared_library::file() const {
  link_map* map = nullptr;
  if (handle_ == nullptr || ::dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || map->l_name == nullptr)
    return name_;
  return *map->l_name != '\0' ? map->l_name : name_;
}

std::string shared_library::own_folder() {
  Dl_info info{};
  link_map* map = nullptr;
  if (::dladdr1(reinterpret_cast<void*>(&own_folder), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 ||
      map == nullptr)
    return {};
  // The loader has no name for the program. dladdr gives its first argument, which need not be a path.
  const bool is_program = map->l_name == nullptr || *map->l_name == '\0';
  std::error_code code;
  const std::filesystem::path file = std::filesystem::canonical(is_program ? "/proc/self/exe" : map->l_name, code);
  return code ? std::string() : file.parent_path().string();
}

void* shared_library::address_of(const char* function_name) const {
  return handle_ != nullptr ? ::dlsym(handle_, function_name) : nullptr;
}

result<void> function_loader::outcome() const {
  if (missing_.empty()) return {};
  return fail(errc::unsupported, library_.name() + " has no function " + missing_)
      .with_hint("install a newer version of the library");
}

}  // namespace shardmesh::cuda
