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
# PLAIN: files of the folder that are no module units; they are compiled with the flags of PLAIN_LINKS (OpenMP's, say),
# which no module may have, and which consumers link, but do not compile with.
function(shardmesh_room name)
  cmake_parse_arguments(PARSE_ARGV 1 room "OPTIONAL" "" "PLAIN;PLAIN_LINKS;IMPORTS;LINKS")
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
  list(TRANSFORM room_PLAIN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/${name}/)
  if(room_PLAIN)
    list(REMOVE_ITEM bodies ${room_PLAIN})
  endif()
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
  if(room_PLAIN)
    add_library(${target}_plain OBJECT ${room_PLAIN})
    target_compile_features(${target}_plain PRIVATE cxx_std_20)
    target_compile_options(${target}_plain PRIVATE ${SHARDMESH_WARNINGS})
    target_include_directories(${target}_plain PRIVATE ${PROJECT_SOURCE_DIR}/modules ${PROJECT_SOURCE_DIR}/include)
    set_target_properties(${target}_plain PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_SCAN_FOR_MODULES OFF)
    target_link_libraries(${target}_plain PRIVATE ${room_PLAIN_LINKS})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_plain>)
    list(TRANSFORM room_PLAIN_LINKS REPLACE "(.+)" "$<LINK_ONLY:\\1>")
    target_link_libraries(${target} INTERFACE ${room_PLAIN_LINKS})
  endif()
  if(room_OPTIONAL)
    set_property(GLOBAL APPEND PROPERTY SHARDMESH_COMPONENTS ${name})
  else()
    set_property(GLOBAL APPEND PROPERTY SHARDMESH_ROOMS ${target})
  endif()
endfunction()
