// SPDX-License-Identifier: Apache-2.0
// A double of NVRTC, a library with its C functions. It compiles nothing: it checks that a program has the headers that
// it includes, and its machine code is a text, which the double of libcudart loads. Its code ends with the options.
#include "nvrtc_double.h"

#include "gpu_double/gpu_double.h"

#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {

struct program {
  std::string source;
  std::map<std::string, std::string> headers;
  std::string log;
  std::string code;
};

std::mutex lock;
int compilations = 0;
std::string options;
std::string failure;
bool fails = false;
int version_major = 13, version_minor = 0;

constexpr int success = 0;
constexpr int invalid_input = 3;
constexpr int compilation_failed = 6;
constexpr int architectures[] = {75, 80, 90};

// Returns the first header that a text includes and the program does not have; empty if it has all.
std::string missing_header(const program& in, const std::string& text) {
  constexpr const char* directive = "\n#include <";
  for (std::size_t at = text.find(directive); at != std::string::npos; at = text.find(directive, at + 1)) {
    const std::size_t begin = at + std::strlen(directive);
    const std::string name = text.substr(begin, text.find('>', begin) - begin);
    if (!in.headers.contains(name)) return name;
  }
  return {};
}

int copied(const std::string& text, char* to) {
  std::memcpy(to, text.c_str(), text.size() + 1);
  return success;
}

}  // namespace

void nvrtc_double_reset() {
  const std::scoped_lock held(lock);
  compilations = 0;
  options.clear();
  fails = false;
  version_major = 13;
  version_minor = 0;
}

int nvrtc_double_compilations() {
  const std::scoped_lock held(lock);
  return compilations;
}

const char* nvrtc_double_options() {
  const std::scoped_lock held(lock);
  return options.c_str();
}

void nvrtc_double_fail(const char* log) {
  const std::scoped_lock held(lock);
  fails = log != nullptr;
  failure = fails ? log : "";
}

void nvrtc_double_set_version(int major, int minor) {
  const std::scoped_lock held(lock);
  version_major = major;
  version_minor = minor;
}

NVRTC_DOUBLE_API int nvrtcVersion(int* major, int* minor) {
  const std::scoped_lock held(lock);
  *major = version_major;
  *minor = version_minor;
  return success;
}

NVRTC_DOUBLE_API const char* nvrtcGetErrorString(int code) {
  return code == compilation_failed ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR of the double";
}

NVRTC_DOUBLE_API int nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(std::size(architectures));
  return success;
}

NVRTC_DOUBLE_API int nvrtcGetSupportedArchs(int* found) {
  std::memcpy(found, architectures, sizeof architectures);
  return success;
}

NVRTC_DOUBLE_API int nvrtcCreateProgram(void** made, const char* source, const char*, int count,
                                        const char* const* headers, const char* const* names) {
  auto* const created = new program{source, {}, {}, {}};
  for (int i = 0; i < count; ++i) created->headers[names[i]] = headers[i];
  *made = created;
  return success;
}

NVRTC_DOUBLE_API int nvrtcDestroyProgram(void** which) {
  delete static_cast<program*>(*which);
  *which = nullptr;
  return success;
}

NVRTC_DOUBLE_API int nvrtcCompileProgram(void* which, int count, const char* const* given) {
  const std::scoped_lock held(lock);
  auto& what = *static_cast<program*>(which);
  ++compilations;
  options.clear();
  for (int i = 0; i < count; ++i) options += std::string(given[i]) + "\n";
  if (fails) {
    what.log = failure;
    return compilation_failed;
  }
  std::string missing = missing_header(what, what.source);
  for (const auto& [name, text] : what.headers)
    if (missing.empty()) missing = missing_header(what, text);
  if (!missing.empty()) {
    what.log = "could not open source file " + missing;
    return compilation_failed;
  }
  what.code = std::string(double_code) + "\n" + options;
  return success;
}

NVRTC_DOUBLE_API int nvrtcGetProgramLogSize(void* which, std::size_t* size) {
  *size = static_cast<program*>(which)->log.size() + 1;
  return success;
}

NVRTC_DOUBLE_API int nvrtcGetProgramLog(void* which, char* log) {
  return copied(static_cast<program*>(which)->log, log);
}

NVRTC_DOUBLE_API int nvrtcGetCUBINSize(void* which, std::size_t* size) {
  const auto& what = *static_cast<program*>(which);
  *size = what.code.size() + 1;
  return what.code.empty() ? invalid_input : success;
}

NVRTC_DOUBLE_API int nvrtcGetCUBIN(void* which, char* code) {
  return copied(static_cast<program*>(which)->code, code);
}

NVRTC_DOUBLE_API int nvrtcGetPTXSize(void* which, std::size_t* size) {
  return nvrtcGetCUBINSize(which, size);
}

NVRTC_DOUBLE_API int nvrtcGetPTX(void* which, char* code) {
  return nvrtcGetCUBIN(which, code);
}
