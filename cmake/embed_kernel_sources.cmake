# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, a C++ source with the text of every file that NVRTC needs to compile the CUDA kernels, as the array of
# modules/cuda/kernel_sources.hpp. The program comes first, and then the headers under the names by which they are
# included. A header that is missing here fails the tests of unit_cuda.
#
#   cmake -DROOT=... -DOUTPUT=... -P embed_kernel_sources.cmake
#
# Included with KERNEL_SOURCES_LIST_ONLY, it sets kernel_source_files alone.
set(kernel_headers "")
foreach(
  name
  IN
  ITEMS
    dtype.hpp
    reduce_op.hpp
    kernels/arithmetic.hpp
    kernels/batch.hpp
    kernels/device_tile.hpp
    kernels/direct.hpp
    kernels/elements.hpp
    kernels/function.hpp
    kernels/launch.cuh
    kernels/slots.hpp
    kernels/small_floats.hpp
    kernels/teams.hpp
    kernels/tiled_batch.hpp
)
  list(APPEND kernel_headers shardmesh/${name})
endforeach()
set(standard_headers cstddef cstdint cstring)
set(kernel_source_files cuda_kernels/run_tiles.cu)
list(TRANSFORM kernel_headers PREPEND include/ OUTPUT_VARIABLE files)
list(APPEND kernel_source_files ${files})
list(TRANSFORM standard_headers PREPEND cuda_kernels/nvrtc/ OUTPUT_VARIABLE files)
list(APPEND kernel_source_files ${files})
if(KERNEL_SOURCES_LIST_ONLY)
  return()
endif()

set(names run_tiles.cu ${kernel_headers} ${standard_headers})
set(text "// Made by cmake/embed_kernel_sources.cmake.\n#include <cuda/kernel_sources.hpp>\n\n")
string(APPEND text "namespace shardmesh::cuda {\n\nconst kernel_source kernel_sources[] = {\n")
foreach(name file IN ZIP_LISTS names kernel_source_files)
  file(READ ${ROOT}/${file} content)
  string(FIND "${content}" ")kernel\"" end)
  if(NOT end EQUAL -1)
    message(FATAL_ERROR "${file} contains the end of its own literal, )kernel\"")
  endif()
  string(APPEND text "    {\"${name}\", R\"kernel(${content})kernel\"},\n")
endforeach()
list(LENGTH names count)
string(APPEND text "};\nconst std::size_t kernel_source_count = ${count};\n\n}  // namespace shardmesh::cuda\n")
file(WRITE ${OUTPUT} "${text}")
