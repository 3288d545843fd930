# SPDX-License-Identifier: Apache-2.0
# Finds Python with its headers, and pybind11's headers, for the package in python/. pybind11 is torch's own copy (in
# the wheel) or that of the package pybind11. Sets SHARDMESH_PYTHON_FOUND; if it is false, SHARDMESH_PYTHON_MISSING
# holds the reason.
function(shardmesh_find_python)
  set(SHARDMESH_PYTHON_FOUND FALSE PARENT_SCOPE)
  set(Python_FIND_VIRTUALENV FIRST)
  if(SHARDMESH_PYTHON)
    set(Python_EXECUTABLE ${SHARDMESH_PYTHON})
  elseif(NOT DEFINED Python_EXECUTABLE AND EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
    set(Python_EXECUTABLE ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  endif()
  find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
  if(NOT Python_Interpreter_FOUND)
    set(why "no Python 3.10 or newer was found")
  elseif(NOT Python_Development.Module_FOUND)
    set(why "${Python_EXECUTABLE} has no headers (Debian: python3-dev)")
  else()
    # Found without importing torch, which takes a second.
    execute_process(
      COMMAND
        ${Python_EXECUTABLE} -c
        "import importlib.util as u, pathlib
for name in ('torch', 'pybind11'):
    found = u.find_spec(name)
    folder = found and found.origin and pathlib.Path(found.origin).parent / 'include'
    if folder and (folder / 'pybind11' / 'pybind11.h').is_file():
        print(folder / 'pybind11')
        break"
      OUTPUT_VARIABLE headers
      OUTPUT_STRIP_TRAILING_WHITESPACE
      ERROR_QUIET
    )
    if(NOT headers)
      set(why "${Python_EXECUTABLE} has neither torch nor pybind11, whose headers are needed")
    endif()
  endif()
  if(why)
    set(SHARDMESH_PYTHON_MISSING "${why}" PARENT_SCOPE)
    if(NOT SHARDMESH_WITH_PYTHON STREQUAL "AUTO")
      message(FATAL_ERROR "SHARDMESH_WITH_PYTHON is ${SHARDMESH_WITH_PYTHON}: ${why}")
    endif()
    message(STATUS "the Python package is not built: ${why}")
    return()
  endif()
  # A separate folder: beside torch's pybind11 is a different fmt from the one that we link.
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/pybind11_headers)
  file(CREATE_LINK ${headers} ${PROJECT_BINARY_DIR}/pybind11_headers/pybind11 SYMBOLIC)
  message(STATUS "the Python package is built for ${Python_EXECUTABLE} ${Python_VERSION}")
  if(NOT TARGET shardmesh_pybind11)
    add_library(shardmesh_pybind11 INTERFACE)
    target_include_directories(shardmesh_pybind11 SYSTEM INTERFACE ${PROJECT_BINARY_DIR}/pybind11_headers)
  endif()
  set(SHARDMESH_PYTHON_FOUND TRUE PARENT_SCOPE)
  set(SHARDMESH_PYTHON_EXECUTABLE ${Python_EXECUTABLE} PARENT_SCOPE)
endfunction()

if(NOT EXISTS ${PROJECT_SOURCE_DIR}/python/CMakeLists.txt) # Conan's sources contain only the C++ package
  set(SHARDMESH_PYTHON_MISSING "these sources have no folder python")
elseif(NOT SHARDMESH_WITH_NCCL)
  set(SHARDMESH_PYTHON_MISSING "SHARDMESH_WITH_NCCL is off, and the package uses its rooms (turn it on)")
  if(SHARDMESH_WITH_PYTHON AND NOT SHARDMESH_WITH_PYTHON STREQUAL "AUTO")
    message(FATAL_ERROR "SHARDMESH_WITH_PYTHON is ${SHARDMESH_WITH_PYTHON}: ${SHARDMESH_PYTHON_MISSING}")
  endif()
elseif(SHARDMESH_SANITIZE)
  set(SHARDMESH_PYTHON_MISSING "a Python without sanitizers does not load libraries that are built with them")
elseif(SHARDMESH_WITH_PYTHON)
  shardmesh_find_python()
else()
  set(SHARDMESH_PYTHON_MISSING "SHARDMESH_WITH_PYTHON is ${SHARDMESH_WITH_PYTHON}")
endif()
