# SPDX-License-Identifier: Apache-2.0
# Finds libdeflate where the distribution ships no CMake package for it. Defines libdeflate::libdeflate.
find_path(libdeflate_INCLUDE_DIR NAMES libdeflate.h)
find_library(libdeflate_LIBRARY NAMES deflate)
set(libdeflate_VERSION)
if(libdeflate_INCLUDE_DIR)
  file(STRINGS ${libdeflate_INCLUDE_DIR}/libdeflate.h libdeflate_text REGEX "define LIBDEFLATE_VERSION_STRING")
  string(REGEX MATCH "[0-9.]+" libdeflate_VERSION "${libdeflate_text}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  libdeflate
  REQUIRED_VARS libdeflate_LIBRARY libdeflate_INCLUDE_DIR
  VERSION_VAR libdeflate_VERSION
)
if(libdeflate_FOUND AND NOT TARGET libdeflate::libdeflate)
  add_library(libdeflate::libdeflate UNKNOWN IMPORTED)
  set_target_properties(
    libdeflate::libdeflate
    PROPERTIES IMPORTED_LOCATION "${libdeflate_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${libdeflate_INCLUDE_DIR}"
  )
endif()
mark_as_advanced(libdeflate_INCLUDE_DIR libdeflate_LIBRARY)
