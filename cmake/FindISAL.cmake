# SPDX-License-Identifier: Apache-2.0
# Finds Intel's ISA-L, which ships no CMake package. Defines ISAL::isal.
find_path(ISAL_INCLUDE_DIR NAMES isa-l/crc.h)
find_library(ISAL_LIBRARY NAMES isal)
set(ISAL_VERSION)
find_file(ISAL_VERSION_HEADER NAMES isa-l.h HINTS ${ISAL_INCLUDE_DIR} ${ISAL_INCLUDE_DIR}/isa-l)
if(ISAL_VERSION_HEADER)
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS ${ISAL_VERSION_HEADER} ISAL_text REGEX "define ISAL_${part}_VERSION ")
    string(REGEX MATCH "[0-9]+" ISAL_${part} "${ISAL_text}")
  endforeach()
  set(ISAL_VERSION ${ISAL_MAJOR}.${ISAL_MINOR}.${ISAL_PATCH})
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ISAL REQUIRED_VARS ISAL_LIBRARY ISAL_INCLUDE_DIR VERSION_VAR ISAL_VERSION)
if(ISAL_FOUND AND NOT TARGET ISAL::isal)
  add_library(ISAL::isal UNKNOWN IMPORTED)
  set_target_properties(
    ISAL::isal
    PROPERTIES IMPORTED_LOCATION "${ISAL_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${ISAL_INCLUDE_DIR}"
  )
endif()
mark_as_advanced(ISAL_INCLUDE_DIR ISAL_LIBRARY ISAL_VERSION_HEADER)
