# SPDX-License-Identifier: Apache-2.0
# The only way to declare a third party: how to find it (here, and for consumers of the installed package), and its data
# for pkg-config and the bill of materials (cmake/sbom.cmake). The list is cmake/dependencies.cmake.
#
#   shardmesh_third_party(zlib TARGET ZLIB::ZLIB FIND ZLIB LICENSE Zlib FLAGS -lz PURL pkg:github/madler/zlib)
#
# TARGET: the target that rooms link; of several names, the first that exists.  FIND: the arguments of find_package.
# FOUND_ALREADY: this call does not look for it.  VERSION: the variable with its version, unless it is PACKAGE_VERSION.
# LICENSE: in SPDX spelling; none for parts of the system, which the bill of materials leaves out.
# FLAGS: the linker's, for pkg-config; none for headers.  PURL: the package URL, without the version.
# Sets SHARDMESH_TARGET_name for the caller.
function(shardmesh_third_party name)
  cmake_parse_arguments(PARSE_ARGV 1 party "FOUND_ALREADY" "LICENSE;PURL;VERSION" "TARGET;FIND;FLAGS")
  if(NOT party_FOUND_ALREADY)
    find_package(${party_FIND} REQUIRED)
  endif()
  list(GET party_FIND 0 package)
  if(NOT party_VERSION)
    set(party_VERSION ${package}_VERSION)
  endif()
  foreach(candidate IN LISTS party_TARGET)
    if(TARGET ${candidate})
      set(target ${candidate})
      break()
    endif()
  endforeach()
  set_property(GLOBAL APPEND PROPERTY SHARDMESH_THIRD_PARTIES ${target})
  set_property(GLOBAL PROPERTY SHARDMESH_NAME_OF_${target} ${name})
  set_property(GLOBAL PROPERTY SHARDMESH_VERSION_OF_${target} "${${party_VERSION}}")
  foreach(part IN ITEMS FIND LICENSE FLAGS PURL)
    set_property(GLOBAL PROPERTY SHARDMESH_${part}_OF_${target} ${party_${part}})
  endforeach()
  set(SHARDMESH_TARGET_${name} ${target} PARENT_SCOPE)
endfunction()
