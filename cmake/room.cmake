# SPDX-License-Identifier: Apache-2.0
# A room is a folder of modules/: one CMake target and one C++ module. It consists of the files in the folder and its
# subfolders, so that adding a file needs no other change: *.cppm are interface units and internal partitions, *.cpp are
# bodies. Internal partitions (they begin `module`, not `export module`) are not installed: only the room's bodies
# import them.
#
#   shardmesh_room(layout IMPORTS core LINKS fmt::fmt)
#
# IMPORTS: rooms whose modules its interface imports.
# LINKS: third parties from third_parties.cmake, private to its .cpp units. Consumers link them, and look for those of
# the rooms that they request.
# HEADERS: third parties of which our objects use only the headers, so that consumers do not look for them. range-v3 is
# one; the bodies of every room may use it.
# APART: its partitions are installed unchanged; those of other rooms are joined into one file (join_interface.cmake).
# OPTIONAL: find_package(shardmesh) without components does not include the room.
# PLAIN: files of the folder that are not module units. They are compiled with the flags of PLAIN_LINKS (OpenMP's, for
# example), which no module may have; consumers link those libraries, but do not compile with the flags.
# Our own compile settings are BUILD_LOCAL_INTERFACE: consumers' interfaces get neither our folders nor our warnings.
function(shardmesh_room name)
  cmake_parse_arguments(PARSE_ARGV 1 room "OPTIONAL;APART" "" "PLAIN;PLAIN_LINKS;IMPORTS;LINKS;HEADERS")
  file(
    GLOB interfaces
    CONFIGURE_DEPENDS
    ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cppm
    ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*/*.cppm
  )
  set(internal)
  foreach(file IN LISTS interfaces)
    file(STRINGS ${file} declaration REGEX "^(export )?module shardmesh" LIMIT_COUNT 1)
    if(NOT declaration MATCHES "^export")
      list(APPEND internal ${file})
    endif()
  endforeach()
  list(REMOVE_ITEM interfaces ${internal})
  file(GLOB bodies CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*/*.cpp)
  set(target shardmesh_${name})
  list(TRANSFORM room_PLAIN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/${name}/)
  if(room_PLAIN)
    list(REMOVE_ITEM bodies ${room_PLAIN})
  endif()
  add_library(${target} STATIC)
  add_library(shardmesh::${name} ALIAS ${target})
  target_sources(
    ${target}
    PUBLIC FILE_SET modules TYPE CXX_MODULES BASE_DIRS ${PROJECT_SOURCE_DIR}/modules FILES ${interfaces}
    PRIVATE ${bodies}
  )
  if(internal)
    target_sources(
      ${target}
      PRIVATE FILE_SET internal TYPE CXX_MODULES BASE_DIRS ${PROJECT_SOURCE_DIR}/modules FILES ${internal}
    )
  endif()
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE "$<BUILD_LOCAL_INTERFACE:${SHARDMESH_WARNINGS}>")
  target_include_directories(${target} PRIVATE $<BUILD_LOCAL_INTERFACE:${PROJECT_SOURCE_DIR}/modules>)
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  list(TRANSFORM room_IMPORTS PREPEND shardmesh:: OUTPUT_VARIABLE imports)
  list(APPEND room_HEADERS range-v3::range-v3)
  target_link_libraries(${target} PUBLIC ${imports})
  foreach(library IN LISTS room_LINKS)
    target_link_libraries(${target} PRIVATE $<BUILD_LOCAL_INTERFACE:${library}>)
  endforeach()
  foreach(library IN LISTS room_HEADERS)
    target_link_libraries(${target} PRIVATE $<BUILD_LOCAL_INTERFACE:$<COMPILE_ONLY:${library}>>)
  endforeach()
  foreach(library IN LISTS room_LINKS)
    target_link_libraries(${target} INTERFACE $<LINK_ONLY:${library}>)
  endforeach()
  if(room_PLAIN)
    add_library(${target}_plain OBJECT ${room_PLAIN})
    target_compile_features(${target}_plain PRIVATE cxx_std_20)
    target_compile_options(${target}_plain PRIVATE ${SHARDMESH_WARNINGS})
    target_include_directories(${target}_plain PRIVATE ${PROJECT_SOURCE_DIR}/modules ${PROJECT_SOURCE_DIR}/include)
    set_target_properties(${target}_plain PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_SCAN_FOR_MODULES OFF)
    target_link_libraries(${target}_plain PRIVATE ${room_PLAIN_LINKS})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_plain>)
    list(TRANSFORM room_PLAIN_LINKS REPLACE "(.+)" "$<LINK_ONLY:\\1>" OUTPUT_VARIABLE links)
    target_link_libraries(${target} INTERFACE ${links})
  endif()
  if(NOT room_APART)
    set_property(GLOBAL APPEND PROPERTY SHARDMESH_JOINED_COMPONENTS ${name})
  endif()
  set(optional)
  if(room_OPTIONAL)
    set(optional OPTIONAL)
  endif()
  shardmesh_component(
    ${name}
    ${optional}
    TARGET ${target}
    IMPORTS ${room_IMPORTS}
    LINKS ${room_LINKS} ${room_PLAIN_LINKS}
    HEADERS ${room_HEADERS}
  )
endfunction()

# Registers a target with cmake/install.cmake as a component of the package, after those that it imports.
function(shardmesh_component name)
  cmake_parse_arguments(PARSE_ARGV 1 component "OPTIONAL" "TARGET" "IMPORTS;LINKS;HEADERS")
  set_property(GLOBAL APPEND PROPERTY SHARDMESH_COMPONENTS ${name})
  if(NOT component_OPTIONAL)
    set_property(GLOBAL APPEND PROPERTY SHARDMESH_HOST_COMPONENTS ${name})
  endif()
  foreach(part IN ITEMS TARGET IMPORTS LINKS HEADERS)
    set_property(GLOBAL PROPERTY SHARDMESH_${part}_OF_${name} ${component_${part}})
  endforeach()
endfunction()
