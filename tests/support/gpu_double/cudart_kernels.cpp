// SPDX-License-Identifier: Apache-2.0
// libcudart's calls about kernels of libraries that are loaded from memory. Kernels are functions of the test.
#include "kernels.hpp"
#include "streams.hpp"

#include <cstring>
#include <map>
#include <memory>
#include <utility>

using namespace gpu_double;

namespace {

struct definition {
  std::vector<std::size_t> argument_bytes;
  double_kernel body = nullptr;
};

struct library {
  std::size_t number = 0;
  bool unloaded = false;
};

struct kernel {
  const library* of = nullptr;
  definition what;
};

std::map<std::string, definition> definitions;
std::vector<std::unique_ptr<library>> libraries;  // including unloaded ones: their handles stay invalid
std::vector<std::unique_ptr<kernel>> kernels;

const library* find_library(const void* handle, const char* function) {
  for (const auto& each : libraries)
    if (each.get() == handle) {
      if (!each->unloaded) return each.get();
      engine::the().problem(std::string(function) + ": library " + std::to_string(each->number) + " is unloaded");
      return nullptr;
    }
  engine::the().problem(std::string(function) + ": not a library");
  return nullptr;
}

const kernel* find_kernel(const void* handle) {
  for (const auto& each : kernels)
    if (each.get() == handle) return find_library(each->of, "cudaLaunchKernel") != nullptr ? each.get() : nullptr;
  engine::the().problem("cudaLaunchKernel: not a kernel");
  return nullptr;
}

}  // namespace

namespace gpu_double {

void reset_kernels() {
  definitions.clear();
  libraries.clear();
  kernels.clear();
}

std::vector<std::string> library_leaks() {
  std::vector<std::string> found;
  for (const auto& each : libraries)
    if (!each->unloaded) found.push_back("library " + std::to_string(each->number));
  return found;
}

}  // namespace gpu_double

void double_define_kernel(const char* name, const std::size_t* argument_bytes, std::size_t arguments,
                          double_kernel body) {
  const engine_lock held = engine::the().lock();
  definitions[name] = {{argument_bytes, argument_bytes + arguments}, body};
}

int cudaLibraryLoadData(void** made, const void* code, void*, void**, unsigned int, void*, void**, unsigned int) {
  call here("cudaLibraryLoadData", current_device());
  if (const int no = refused(here)) return returned(no);
  if (!made || !code) return returned(cuda_invalid_value);
  if (std::strncmp(static_cast<const char*>(code), double_code, sizeof double_code - 1) != 0)
    return returned(cuda_invalid_kernel_image);
  libraries.push_back(std::make_unique<library>(library{libraries.size() + 1, false}));
  *made = libraries.back().get();
  return cuda_success;
}

int cudaLibraryGetKernel(void** made, void* handle, const char* name) {
  call here("cudaLibraryGetKernel", current_device());
  if (const int no = refused(here)) return returned(no);
  const library* of = find_library(handle, "cudaLibraryGetKernel");
  if (!of) return returned(cuda_invalid_handle);
  const auto found = definitions.find(name);
  if (found == definitions.end()) return returned(cuda_symbol_not_found);
  kernels.push_back(std::make_unique<kernel>(kernel{of, found->second}));
  *made = kernels.back().get();
  return cuda_success;
}

int cudaLibraryUnload(void* handle) {
  call here("cudaLibraryUnload", current_device());
  if (const int no = refused(here)) return returned(no);
  if (!find_library(handle, "cudaLibraryUnload")) return returned(cuda_invalid_handle);
  static_cast<library*>(handle)->unloaded = true;
  return cuda_success;
}

int cudaLaunchKernel(const void* handle, cuda_grid_size grid, cuda_grid_size block, void** arguments, std::size_t,
                     void* stream_handle) {
  call here("cudaLaunchKernel", current_device());
  if (const int no = refused(here)) return returned(no);
  stream* which = devices_of_the_double().find_stream(stream_handle, "cudaLaunchKernel");
  const kernel* what = find_kernel(handle);
  if (!which || !what) return returned(cuda_invalid_handle);
  if (grid.x == 0 || grid.y != 1 || grid.z != 1 || block.x == 0 || block.x > 1024 || block.y != 1 || block.z != 1)
    return returned(cuda_invalid_value);
  std::vector<std::vector<std::byte>> copies;
  for (std::size_t i = 0; i < what->what.argument_bytes.size(); ++i) {
    const auto* const begin = static_cast<const std::byte*>(arguments[i]);
    copies.emplace_back(begin, begin + what->what.argument_bytes[i]);
  }
  const operation_ref op = new_operation(here, *which, "");
  if (here.is(double_fail_later))
    op->body = [device = op->device, code = here.planted().code] { engine::the().device_error(device) = code; };
  else
    op->host = [body = what->what.body, copies = std::move(copies), blocks = grid.x, threads = block.x]() mutable {
      std::vector<void*> given;
      for (auto& each : copies) given.push_back(each.data());
      body(given.data(), blocks, threads);
    };
  devices_of_the_double().append(*which, op);
  return cuda_success;
}
