# SPDX-License-Identifier: Apache-2.0
# Finds xxHash on distributions that ship no CMake package for it. Defines xxHash::xxhash.
find_path(xxHash_INCLUDE_DIR NAMES xxhash.h)
find_library(xxHash_LIBRARY NAMES xxhash)
set(xxHash_VERSION)
if(xxHash_INCLUDE_DIR)
  file(STRINGS ${xxHash_INCLUDE_DIR}/xxhash.h xxHash_numbers REGEX "define XXH_VERSION_(MAJOR|MINOR|RELEASE) ")
  string(REGEX MATCHALL "[0-9]+" xxHash_numbers "${xxHash_numbers}")
  list(JOIN xxHash_numbers "." xxHash_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(xxHash REQUIRED_VARS xxHash_LIBRARY xxHash_INCLUDE_DIR VERSION_VAR xxHash_VERSION)
if(xxHash_FOUND AND NOT TARGET xxHash::xxhash)
  add_library(xxHash::xxhash UNKNOWN IMPORTED)
  set_target_properties(
    xxHash::xxhash
    PROPERTIES IMPORTED_LOCATION "${xxHash_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${xxHash_INCLUDE_DIR}"
  )
endif()
mark_as_advanced(xxHash_INCLUDE_DIR xxHash_LIBRARY)
