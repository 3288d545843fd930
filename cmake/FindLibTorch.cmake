# SPDX-License-Identifier: Apache-2.0
# Finds LibTorch's headers and its host libraries, and nothing else. Torch's own package looks for everything it was
# built with (CUDA's toolkit, MKL), ends the configuration if any is missing, and would pass its flags on to modules.
# Searches Torch_DIR, Torch_ROOT, and CMAKE_PREFIX_PATH, then the PyTorch of SHARDMESH_PYTHON (by default a python3 of
# .venv or on the path). Defines LibTorch::LibTorch and LibTorch_VERSION.
set(LibTorch_hints ${Torch_ROOT} $ENV{Torch_ROOT})
foreach(folder IN ITEMS ${Torch_DIR} $ENV{Torch_DIR}) # the folder of TorchConfig.cmake: share/cmake/Torch
  get_filename_component(folder ${folder}/../../.. ABSOLUTE)
  list(APPEND LibTorch_hints ${folder})
endforeach()
foreach(folder IN LISTS CMAKE_PREFIX_PATH) # torch.utils.cmake_prefix_path is share/cmake
  if(EXISTS ${folder}/Torch/TorchConfig.cmake)
    get_filename_component(folder ${folder}/../.. ABSOLUTE)
  endif()
  list(APPEND LibTorch_hints ${folder})
endforeach()
find_path(LibTorch_INCLUDE_DIR NAMES ATen/core/Tensor.h HINTS ${LibTorch_hints} PATH_SUFFIXES include)
if(NOT LibTorch_INCLUDE_DIR)
  set(LibTorch_python ${SHARDMESH_PYTHON})
  if(NOT LibTorch_python)
    find_program(LibTorch_PYTHON python3 HINTS ${PROJECT_SOURCE_DIR}/.venv/bin)
    set(LibTorch_python ${LibTorch_PYTHON})
  endif()
  if(LibTorch_python)
    # Looks up its location only: importing it would take seconds.
    execute_process(
      COMMAND ${LibTorch_python} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
      OUTPUT_VARIABLE LibTorch_of_python
      OUTPUT_STRIP_TRAILING_WHITESPACE
      ERROR_QUIET
    )
    find_path(LibTorch_INCLUDE_DIR NAMES ATen/core/Tensor.h HINTS ${LibTorch_of_python} PATH_SUFFIXES include)
  endif()
endif()
get_filename_component(LibTorch_root "${LibTorch_INCLUDE_DIR}/.." ABSOLUTE)
set(LibTorch_libraries)
foreach(name IN ITEMS c10 torch_cpu torch)
  find_library(LibTorch_${name}_LIBRARY NAMES ${name} HINTS ${LibTorch_root} PATH_SUFFIXES lib)
  list(APPEND LibTorch_libraries LibTorch_${name}_LIBRARY)
endforeach()
set(LibTorch_VERSION)
foreach(header IN ITEMS torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  if(NOT LibTorch_VERSION AND EXISTS ${LibTorch_INCLUDE_DIR}/${header})
    file(STRINGS ${LibTorch_INCLUDE_DIR}/${header} LibTorch_numbers REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
    string(REGEX MATCHALL "[0-9]+" LibTorch_numbers "${LibTorch_numbers}")
    list(JOIN LibTorch_numbers "." LibTorch_VERSION)
  endif()
endforeach()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  LibTorch
  REQUIRED_VARS LibTorch_INCLUDE_DIR ${LibTorch_libraries}
  VERSION_VAR LibTorch_VERSION
)
if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  foreach(name IN ITEMS c10 torch_cpu)
    add_library(LibTorch::${name} UNKNOWN IMPORTED)
    set_target_properties(LibTorch::${name} PROPERTIES IMPORTED_LOCATION "${LibTorch_${name}_LIBRARY}")
  endforeach()
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  set_target_properties(
    LibTorch::LibTorch
    PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIR};${LibTorch_INCLUDE_DIR}/torch/csrc/api/include"
      INTERFACE_LINK_LIBRARIES "LibTorch::torch_cpu;LibTorch::c10"
  )
endif()
mark_as_advanced(LibTorch_PYTHON LibTorch_INCLUDE_DIR ${LibTorch_libraries})
