# SPDX-License-Identifier: Apache-2.0
# The bill of materials, CycloneDX 1.5 in JSON: the contents of the package, from the list in cmake/dependencies.cmake.
# It does not depend on the time or the machine's folders, so equal builds give equal files. It leaves out parts of the
# system: the C and C++ libraries, threads, and the dynamic loader.
get_property(components GLOBAL PROPERTY SHARDMESH_COMPONENTS)
get_property(host_components GLOBAL PROPERTY SHARDMESH_HOST_COMPONENTS)
get_property(parties GLOBAL PROPERTY SHARDMESH_THIRD_PARTIES)

# Sets `result` to the names, as a JSON list, of the third parties of these targets.
function(shardmesh_names_of result)
  set(names)
  foreach(library IN LISTS ARGN)
    get_property(license GLOBAL PROPERTY SHARDMESH_LICENSE_OF_${library})
    get_property(name GLOBAL PROPERTY SHARDMESH_NAME_OF_${library})
    if(license)
      list(APPEND names "\"${name}\"")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES names)
  list(SORT names)
  list(JOIN names ", " names)
  set(${result} "[${names}]" PARENT_SCOPE)
endfunction()

set(bill)
set(depends)
foreach(library IN LISTS parties)
  foreach(
    part
    IN
    ITEMS NAME VERSION LICENSE PURL FLAGS
  )
    get_property(${part} GLOBAL PROPERTY SHARDMESH_${part}_OF_${library})
  endforeach()
  if(NOT LICENSE)
    continue()
  endif()
  set(version)
  if(VERSION) # RE2's headers do not state theirs
    set(version ", \"version\": \"${VERSION}\"")
    string(APPEND PURL "@${VERSION}")
  endif()
  list(
    APPEND bill
    "    {\"type\": \"library\", \"bom-ref\": \"${NAME}\", \"name\": \"${NAME}\"${version},
     \"licenses\": [{\"expression\": \"${LICENSE}\"}], \"purl\": \"${PURL}\"}"
  )
  list(APPEND depends "    {\"ref\": \"${NAME}\", \"dependsOn\": []}")
endforeach()

# The host rooms are one component, like `import shardmesh;`; each optional room and the command line are separate ones.
set(host_libraries)
foreach(component IN LISTS host_components)
  foreach(part IN ITEMS LINKS HEADERS)
    get_property(${part} GLOBAL PROPERTY SHARDMESH_${part}_OF_${component})
    list(APPEND host_libraries ${${part}})
  endforeach()
endforeach()
shardmesh_names_of(names ${host_libraries})
list(APPEND depends "    {\"ref\": \"shardmesh\", \"dependsOn\": ${names}}")
set(optional ${components})
list(REMOVE_ITEM optional ${host_components})
if(SHARDMESH_BUILD_TOOLS)
  list(APPEND optional tools)
  set_property(
    GLOBAL
    PROPERTY SHARDMESH_LINKS_OF_tools CLI11::CLI11 nlohmann_json::nlohmann_json simdjson::simdjson fmt::fmt range-v3::range-v3
  )
  if(TARGET shardmesh_remote)
    set_property(GLOBAL APPEND PROPERTY SHARDMESH_LINKS_OF_tools CURL::libcurl pugixml::pugixml)
  endif()
endif()
if(SHARDMESH_CUDA_KERNELS_FOUND)
  list(APPEND optional cuda_kernels)
  set_property(GLOBAL PROPERTY SHARDMESH_LINKS_OF_cuda_kernels ${SHARDMESH_TARGET_cuda-runtime})
endif()
foreach(component IN LISTS optional)
  foreach(part IN ITEMS LINKS HEADERS)
    get_property(${part} GLOBAL PROPERTY SHARDMESH_${part}_OF_${component})
  endforeach()
  list(
    APPEND bill
    "    {\"type\": \"library\", \"bom-ref\": \"shardmesh-${component}\", \"name\": \"shardmesh-${component}\",
     \"version\": \"${PROJECT_VERSION}\", \"licenses\": [{\"expression\": \"Apache-2.0\"}]}"
  )
  shardmesh_names_of(names ${LINKS} ${HEADERS})
  string(REGEX REPLACE "\\[(.)" "[\"shardmesh\", \\1" names "${names}")
  string(REPLACE ", ]" "]" names "${names}")
  list(APPEND depends "    {\"ref\": \"shardmesh-${component}\", \"dependsOn\": ${names}}")
endforeach()
list(JOIN bill ",\n" bill)
list(JOIN depends ",\n" depends)
file(
  CONFIGURE
  OUTPUT shardmesh.cdx.json
  @ONLY
  CONTENT
    [[{
  "bomFormat": "CycloneDX",
  "specVersion": "1.5",
  "version": 1,
  "metadata": {
    "component": {"type": "library", "bom-ref": "shardmesh", "name": "shardmesh", "version": "@PROJECT_VERSION@",
      "description": "@PROJECT_DESCRIPTION@", "licenses": [{"expression": "Apache-2.0"}]}
  },
  "components": [
@bill@
  ],
  "dependencies": [
@depends@
  ]
}
]]
)
file(READ ${CMAKE_CURRENT_BINARY_DIR}/shardmesh.cdx.json text)
string(JSON unused ERROR_VARIABLE problem GET "${text}" dependencies)
if(problem)
  message(FATAL_ERROR "shardmesh.cdx.json is no JSON: ${problem}")
endif()
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/shardmesh.cdx.json DESTINATION ${CMAKE_INSTALL_DATADIR}/shardmesh)
