// SPDX-License-Identifier: Apache-2.0
// Prints the file in which the room cuda finds the library of kernels, "none", or the error. Built as a program and as
// a shared library, both with the room inside; kernel_places.py copies them into folders like those of an installation.
#include <cstdio>
#include <memory>
#include <string>

import shardmesh.cuda;

extern "C" __attribute__((visibility("default"))) const char* found_kernels(const char* path) {
  static std::string text;
  const auto found = shardmesh::cuda::kernel_library::find(path);
  if (!found)
    text = "error: " + to_string(found.error());
  else
    text = *found == nullptr ? std::string("none") : (*found)->library.file();
  return text.c_str();
}

int main(int argc, char** argv) {
  std::puts(found_kernels(argc > 1 ? argv[1] : ""));
}
