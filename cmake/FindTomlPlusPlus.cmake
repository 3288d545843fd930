# SPDX-License-Identifier: Apache-2.0
# Finds the headers of toml++ 3. Defines TomlPlusPlus::headers. The target of its own CMake package may link a shared
# library, which we do not need.
find_path(TomlPlusPlus_INCLUDE_DIR NAMES toml++/toml.h)
if(TomlPlusPlus_INCLUDE_DIR)
  file(STRINGS ${TomlPlusPlus_INCLUDE_DIR}/toml++/impl/version.h numbers REGEX "define TOML_LIB_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE "[^0-9;]+" "" numbers "${numbers}")
  list(JOIN numbers "." TomlPlusPlus_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TomlPlusPlus REQUIRED_VARS TomlPlusPlus_INCLUDE_DIR VERSION_VAR TomlPlusPlus_VERSION)
if(TomlPlusPlus_FOUND AND NOT TARGET TomlPlusPlus::headers)
  add_library(TomlPlusPlus::headers INTERFACE IMPORTED)
  target_include_directories(TomlPlusPlus::headers INTERFACE ${TomlPlusPlus_INCLUDE_DIR})
endif()
mark_as_advanced(TomlPlusPlus_INCLUDE_DIR)
