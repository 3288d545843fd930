# SPDX-License-Identifier: Apache-2.0
# Finds nvcc and a host compiler that it accepts, for the CUDA kernels in cuda_kernels/, and enables the language CUDA.
# Sets SHARDMESH_CUDA_KERNELS_FOUND; if it is false, SHARDMESH_CUDA_KERNELS_MISSING holds the reason.
#
# The user's choices win: CMAKE_CUDA_COMPILER or CUDACXX, CMAKE_CUDA_HOST_COMPILER or CUDAHOSTCXX, and
# CMAKE_CUDA_ARCHITECTURES or CUDAARCHS.
set(SHARDMESH_CUDA_KERNELS_FOUND FALSE)
set(given_architectures "${CMAKE_CUDA_ARCHITECTURES}$ENV{CUDAARCHS}") # CMake warns of variables that nothing reads
find_program(SHARDMESH_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)

# Sets `result` to nothing if `nvcc` compiles and links with the host compiler (empty: nvcc's own), and to nvcc's first
# error otherwise.
function(shardmesh_try_nvcc result nvcc host)
  set(works "${nvcc} with ${host}")
  if(SHARDMESH_NVCC_WORKS STREQUAL works)
    set(${result} "" PARENT_SCOPE)
    return()
  endif()
  set(folder ${PROJECT_BINARY_DIR}/CMakeFiles/shardmesh_nvcc)
  file(WRITE ${folder}/probe.cu "#include <vector>\n__global__ void kernel() {}\nint main() { kernel<<<1, 1>>>(); }\n")
  set(with_host)
  if(host)
    set(with_host -ccbin ${host})
  endif()
  execute_process(
    COMMAND ${nvcc} ${with_host} -std=c++17 -cudart static ${folder}/probe.cu -o ${folder}/probe
    RESULT_VARIABLE status
    OUTPUT_VARIABLE text
    ERROR_VARIABLE text
  )
  if(status EQUAL 0)
    set(SHARDMESH_NVCC_WORKS "${works}" CACHE INTERNAL "the nvcc and the host compiler that were tried with success")
    set(text "")
  else()
    string(REGEX MATCH "[^\n]*(error|fatal|cannot|not found)[^\n]*" first "${text}")
    set(text "status ${status}: ${first}")
  endif()
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

# Chooses the compilers, and sets CMAKE_CUDA_COMPILER and CMAKE_CUDA_HOST_COMPILER for the caller.
function(shardmesh_choose_nvcc)
  set(nvcc ${SHARDMESH_NVCC})
  if(CMAKE_CUDA_COMPILER)
    set(nvcc ${CMAKE_CUDA_COMPILER})
  elseif(NOT "$ENV{CUDACXX}" STREQUAL "")
    set(nvcc $ENV{CUDACXX})
  endif()
  if(NOT nvcc)
    set(
      SHARDMESH_CUDA_KERNELS_MISSING
      "nvcc was not found (install the CUDA toolkit; CUDA_HOME or CMAKE_CUDA_COMPILER names it)"
      PARENT_SCOPE
    )
    return()
  endif()
  execute_process(COMMAND ${nvcc} --version OUTPUT_VARIABLE text ERROR_QUIET)
  if(NOT text MATCHES "release ([0-9]+\\.[0-9]+)")
    set(SHARDMESH_CUDA_KERNELS_MISSING "${nvcc} is no nvcc (CMAKE_CUDA_COMPILER names one)" PARENT_SCOPE)
    return()
  endif()
  set(version ${CMAKE_MATCH_1})
  if(version VERSION_LESS 12.1) # launches with 32 KiB of arguments
    set(
      SHARDMESH_CUDA_KERNELS_MISSING
      "${nvcc} is of CUDA ${version} (CMAKE_CUDA_COMPILER names one of 12.1 or newer)"
      PARENT_SCOPE
    )
    return()
  endif()
  # The host compiler's libstdc++ should be no newer than the one that the rooms are compiled with, which is 12.
  if(CMAKE_CUDA_HOST_COMPILER)
    set(hosts ${CMAKE_CUDA_HOST_COMPILER})
  elseif(NOT "$ENV{CUDAHOSTCXX}" STREQUAL "")
    set(hosts $ENV{CUDAHOSTCXX})
  else()
    set(hosts)
    foreach(
      name
      g++-12
      g++
      g++-13
      g++-14
      g++-11
    )
      find_program(found ${name} NO_CACHE)
      if(found)
        list(APPEND hosts ${found})
      endif()
      unset(found)
    endforeach()
  endif()
  if(NOT hosts)
    set(
      SHARDMESH_CUDA_KERNELS_MISSING
      "no host compiler for nvcc was found (install g++-12; CMAKE_CUDA_HOST_COMPILER names another)"
      PARENT_SCOPE
    )
    return()
  endif()
  set(problems)
  foreach(host IN LISTS hosts)
    shardmesh_try_nvcc(problem ${nvcc} ${host})
    if(NOT problem)
      set(CMAKE_CUDA_COMPILER ${nvcc} PARENT_SCOPE)
      set(CMAKE_CUDA_HOST_COMPILER ${host} PARENT_SCOPE)
      set(SHARDMESH_CUDA_KERNELS_MISSING "" PARENT_SCOPE)
      return()
    endif()
    list(APPEND problems "${host}: ${problem}")
  endforeach()
  list(JOIN problems "; " problems)
  set(
    SHARDMESH_CUDA_KERNELS_MISSING
    "${nvcc} ${version} does not compile with ${problems} (CMAKE_CUDA_HOST_COMPILER names a compiler that it accepts)"
    PARENT_SCOPE
  )
endfunction()

# Sets `result` to machine code for the architectures of data centres and workstations that this nvcc knows, and PTX of
# the newest, which drivers compile for later devices.
function(shardmesh_cuda_architectures result nvcc)
  execute_process(COMMAND ${nvcc} --list-gpu-code OUTPUT_VARIABLE text ERROR_QUIET)
  set(known)
  foreach(
    architecture
    IN
    ITEMS 75 80 86 89 90 100 120
  )
    if(text MATCHES "sm_${architecture}(\n|$)")
      list(APPEND known ${architecture})
    endif()
  endforeach()
  list(POP_BACK known newest)
  list(TRANSFORM known APPEND -real)
  set(${result} ${known} ${newest} PARENT_SCOPE)
endfunction()

if(NOT SHARDMESH_WITH_CUDA_KERNELS)
  set(SHARDMESH_CUDA_KERNELS_MISSING "SHARDMESH_WITH_CUDA_KERNELS is ${SHARDMESH_WITH_CUDA_KERNELS}")
elseif(NOT SHARDMESH_WITH_NCCL)
  set(SHARDMESH_CUDA_KERNELS_MISSING "SHARDMESH_WITH_NCCL is off, and only its room cuda loads them (turn it on)")
elseif(SHARDMESH_SANITIZE)
  set(SHARDMESH_CUDA_KERNELS_MISSING "nvcc has no sanitizers (build without SHARDMESH_SANITIZE)")
else()
  shardmesh_choose_nvcc()
endif()
if(SHARDMESH_CUDA_KERNELS_MISSING)
  if(SHARDMESH_WITH_CUDA_KERNELS STREQUAL "AUTO")
    message(STATUS "the CUDA kernels are not built: ${SHARDMESH_CUDA_KERNELS_MISSING}")
  elseif(SHARDMESH_WITH_CUDA_KERNELS)
    message(FATAL_ERROR "SHARDMESH_WITH_CUDA_KERNELS is ${SHARDMESH_WITH_CUDA_KERNELS}: ${SHARDMESH_CUDA_KERNELS_MISSING}")
  endif()
else()
  if(NOT given_architectures)
    shardmesh_cuda_architectures(CMAKE_CUDA_ARCHITECTURES ${CMAKE_CUDA_COMPILER})
  endif()
  enable_language(CUDA)
  message(
    STATUS
    "the CUDA kernels are built by ${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_COMPILER_VERSION} with ${CMAKE_CUDA_HOST_COMPILER} for ${CMAKE_CUDA_ARCHITECTURES}"
  )
  set(SHARDMESH_CUDA_KERNELS_FOUND TRUE)
  add_library(shardmesh_cudart INTERFACE) # stands for the runtime that nvcc links, in the bill of materials
  shardmesh_third_party(
    cuda-runtime
    TARGET shardmesh_cudart
    FIND CUDAToolkit
    FOUND_ALREADY
    VERSION CMAKE_CUDA_COMPILER_VERSION
    LICENSE LicenseRef-NVIDIA-CUDA-EULA
    PURL pkg:generic/cuda-runtime
  )
endif()
