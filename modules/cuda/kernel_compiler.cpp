// SPDX-License-Identifier: Apache-2.0
module;
#include "kernel_sources.hpp"

#include <shardmesh/kernels/tiled_batch.hpp>
#include <shardmesh/try.hpp>
#include <shardmesh/version.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.cuda;

import shardmesh.digest;

namespace shardmesh::cuda {
namespace {

// A log can repeat one mistake for every template; its beginning names it.
constexpr std::size_t most_log = 4000;

// The architecture for which a program is compiled.
struct target {
  int architecture = 0;
  bool is_ptx = false;
};

result<target> target_of(const nvrtc& with, int architecture) {
  int newest = 0;
  for (const int known : with.architectures) {
    if (known == architecture) return target{known, false};
    if (known < architecture) newest = known;
  }
  if (newest != 0) return target{newest, true};
  std::string known;
  for (const int each : with.architectures) known += (known.empty() ? "" : " ") + std::to_string(each);
  return fail(errc::unsupported, with.library.file() + " does not compile for this GPU")
      .with_values("architecture " + std::to_string(architecture), known)
      .with_hint("name an NVRTC of an older CUDA in SHARDMESH_NVRTC, or install the component cuda_kernels");
}

std::vector<std::string> options_of(const target& chosen, const kernel_program& program) {
  return {
      (chosen.is_ptx ? "--gpu-architecture=compute_" : "--gpu-architecture=sm_") + std::to_string(chosen.architecture),
      "--std=c++17",
      "--device-as-default-execution-space",  // lambdas of the bodies are for the device
      "--diag-suppress=222",                  // an infinity that is made by overflow
      "-DSHARDMESH_SLOTS=" + std::to_string(program.slots),
      std::string("-DSHARDMESH_COMPUTES=") + (program.computes ? "true" : "false"),
      "-DSHARDMESH_TILE_ITEM_BYTES=" + std::to_string(sizeof(kernel_bodies::tile_item)),
  };
}

// A program of NVRTC, which the destructor frees.
class nvrtc_program {
 public:
  explicit nvrtc_program(const nvrtc& with) : with_(with) {}
  nvrtc_program(const nvrtc_program&) = delete;
  nvrtc_program& operator=(const nvrtc_program&) = delete;
  ~nvrtc_program() {
    if (program_ != nullptr) static_cast<void>(with_.call.destroy_program(&program_));
  }
  int create() {
    std::vector<const char*> headers, names;
    for (std::size_t i = 1; i < kernel_source_count; ++i) {
      headers.push_back(kernel_sources[i].text);
      names.push_back(kernel_sources[i].name);
    }
    return with_.call.create_program(&program_, kernel_sources[0].text, kernel_sources[0].name,
                                     static_cast<int>(headers.size()), headers.data(), names.data());
  }
  int compile(const std::vector<std::string>& options) {
    std::vector<const char*> given;
    for (const std::string& option : options) given.push_back(option.c_str());
    return with_.call.compile_program(program_, static_cast<int>(given.size()), given.data());
  }
  std::string log() const {
    std::size_t size = 0;
    if (with_.call.get_program_log_size(program_, &size) != 0 || size <= 1) return {};
    std::string text(size, '\0');
    if (with_.call.get_program_log(program_, text.data()) != 0) return {};
    if (const std::size_t end = text.find('\0'); end != std::string::npos) text.resize(end);
    if (text.size() > most_log) text = text.substr(0, most_log) + " ...";
    return text;
  }
  int code_of(bool is_ptx, std::vector<char>& code) const {
    std::size_t size = 0;
    const int asked = (is_ptx ? with_.call.get_ptx_size : with_.call.get_cubin_size)(program_, &size);
    if (asked != 0) return asked;
    code.resize(size);
    return (is_ptx ? with_.call.get_ptx : with_.call.get_cubin)(program_, code.data());
  }

 private:
  const nvrtc& with_;
  void* program_ = nullptr;
};

}  // namespace

result<std::vector<char>> compile(const nvrtc& with, const kernel_program& program) {
  SHARDMESH_TRY(const target chosen, target_of(with, program.architecture));
  nvrtc_program made(with);
  std::vector<char> code;
  int status = made.create();
  if (status == 0) status = made.compile(options_of(chosen, program));
  if (status == 0) status = made.code_of(chosen.is_ptx, code);
  if (status == 0 && !code.empty()) return code;
  const char* const text = with.call.get_error_string(status);
  const std::string log = made.log();
  return fail(errc::unsupported, "NVRTC " + std::to_string(with.major) + "." + std::to_string(with.minor) +
                                     " cannot compile the kernels for architecture " +
                                     std::to_string(program.architecture) + ": " +
                                     (text != nullptr ? text : "an unknown error") + " (" + std::to_string(status) +
                                     ")" + (log.empty() ? "" : "; its log: " + log))
      .with_file(with.library.file())
      .with_hint("name another NVRTC in SHARDMESH_NVRTC, or install the component cuda_kernels");
}

std::string cache_name(const nvrtc& with, const kernel_program& program) {
  sha256 digest;
  const auto add = [&](std::string_view text) {
    const std::string size = std::to_string(text.size()) + ":";  // so that no two lists of texts are the same bytes
    digest.update(std::as_bytes(std::span(size)));
    digest.update(std::as_bytes(std::span(text)));
  };
  add(SHARDMESH_VERSION);
  add(std::to_string(with.major) + "." + std::to_string(with.minor));
  const auto chosen = target_of(with, program.architecture);
  for (const std::string& option : options_of(chosen.value_or(target{program.architecture, false}), program))
    add(option);
  for (std::size_t i = 0; i < kernel_source_count; ++i) {
    add(kernel_sources[i].name);
    add(kernel_sources[i].text);
  }
  return "sm_" + std::to_string(program.architecture) + "-" + digest.finish_hex();
}

result<std::vector<char>> cached_or_compiled(const nvrtc& with, const kernel_cache& cache,
                                             const kernel_program& program) {
  const std::string name = cache_name(with, program);
  if (std::vector<char> kept = cache.read(name); !kept.empty()) return kept;
  SHARDMESH_TRY(std::vector<char> made, compile(with, program));
  static_cast<void>(cache.write(name, made));  // `shardmesh devices` reports a cache that cannot be used
  return made;
}

}  // namespace shardmesh::cuda
