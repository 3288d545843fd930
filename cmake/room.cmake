# SPDX-License-Identifier: Apache-2.0
# A room is a folder of modules/: one CMake target, one C++ module. Its files are its folder's files,
# so that adding a file is adding a file: *.cppm are interface units and internal partitions, *.cpp are bodies. Internal
# partitions (they begin `module`, not `export module`) are not installed: nobody but the room's bodies imports them.
#
#   shardmesh_room(layout IMPORTS core LINKS fmt::fmt)
#
# IMPORTS: rooms whose modules its interface imports.  LINKS: third parties, private to its .cpp units.
# range-v3 is there for the bodies of every room; its headers end in our objects, so consumers do not look for it.
# OPTIONAL: the room is a component of the installed package, found only when it is asked for.
function(shardmesh_room name)
  cmake_parse_arguments(PARSE_ARGV 1 room "OPTIONAL" "" "IMPORTS;LINKS")
  file(GLOB interfaces CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cppm)
  set(internal)
  foreach(file IN LISTS interfaces)
    file(STRINGS ${file} declaration REGEX "^(export )?module shardmesh" LIMIT_COUNT 1)
    if(NOT declaration MATCHES "^export")
      list(APPEND internal ${file})
    endif()
  endforeach()
  list(REMOVE_ITEM interfaces ${internal})
  file(GLOB bodies CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  set(target shardmesh_${name})
  add_library(${target} STATIC)
  add_library(shardmesh::${name} ALIAS ${target})
  target_sources(${target}
    PUBLIC FILE_SET modules TYPE CXX_MODULES BASE_DIRS ${PROJECT_SOURCE_DIR}/modules FILES ${interfaces}
    PRIVATE ${bodies})
  if(internal)
    target_sources(${target} PRIVATE FILE_SET internal TYPE CXX_MODULES BASE_DIRS ${PROJECT_SOURCE_DIR}/modules
      FILES ${internal})
  endif()
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE ${SHARDMESH_WARNINGS})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/modules)
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  list(TRANSFORM room_IMPORTS PREPEND shardmesh::)
  target_link_libraries(${target} PUBLIC ${room_IMPORTS} PRIVATE ${room_LINKS}
    $<BUILD_LOCAL_INTERFACE:range-v3::range-v3>)
  if(room_OPTIONAL)
    set_property(GLOBAL APPEND PROPERTY SHARDMESH_COMPONENTS ${name})
  else()
    set_property(GLOBAL APPEND PROPERTY SHARDMESH_ROOMS ${target})
  endif()
endfunction()
