# SPDX-License-Identifier: Apache-2.0
# Installation. Every room is a component of the package with its own export set, so that a consumer looks only for the
# dependencies of the components that it requests. One config file combines them.
include(CMakePackageConfigHelpers)
get_property(components GLOBAL PROPERTY SHARDMESH_COMPONENTS)
get_property(SHARDMESH_EXPORTED_HOST_COMPONENTS GLOBAL PROPERTY SHARDMESH_HOST_COMPONENTS)
get_property(SHARDMESH_JOINED_COMPONENTS GLOBAL PROPERTY SHARDMESH_JOINED_COMPONENTS)
set(cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/shardmesh)
set(modules_dir ${CMAKE_INSTALL_LIBDIR}/shardmesh/modules)
set(SHARDMESH_NEEDS) # lines of the config: each component's imports and dependencies
set(conan_components) # the same for conanfile.py
foreach(component IN LISTS components)
  foreach(part IN ITEMS TARGET IMPORTS LINKS)
    get_property(${part} GLOBAL PROPERTY SHARDMESH_${part}_OF_${component})
  endforeach()
  get_target_property(has_headers ${TARGET} HEADER_SETS)
  set(headers)
  if(has_headers)
    set(headers FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  endif()
  install(
    TARGETS ${TARGET}
    EXPORT shardmesh_${component}Targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET modules DESTINATION ${modules_dir}
    ${headers}
  )
  install(EXPORT shardmesh_${component}Targets NAMESPACE shardmesh:: DESTINATION ${cmake_dir} CXX_MODULES_DIRECTORY cxx-modules)
  string(APPEND SHARDMESH_NEEDS "set(shardmesh_imports_of_${component} ${IMPORTS})\n")
  set(names)
  foreach(library IN LISTS LINKS)
    get_property(find GLOBAL PROPERTY SHARDMESH_FIND_OF_${library})
    if(find) # else it is part of the system
      list(JOIN find " " find)
      string(APPEND SHARDMESH_NEEDS "list(APPEND shardmesh_needs_of_${component} \"${find}\")\n")
      get_property(name GLOBAL PROPERTY SHARDMESH_NAME_OF_${library})
      list(APPEND names ${name})
    endif()
  endforeach()
  list(TRANSFORM IMPORTS REPLACE "(.+)" "\"\\1\"")
  list(JOIN IMPORTS ", " IMPORTS)
  list(TRANSFORM names REPLACE "(.+)" "\"\\1\"")
  list(JOIN names ", " names)
  list(
    APPEND conan_components
    "  \"${component}\": {\"library\": \"${TARGET}\", \"imports\": [${IMPORTS}], \"needs\": [${names}]}"
  )
endforeach()
if(SHARDMESH_CUDA_KERNELS_FOUND)
  list(APPEND conan_components "  \"cuda_kernels\": {\"library\": \"shardmesh_cuda_kernels\", \"imports\": [], \"needs\": []}")
endif()
list(JOIN conan_components ",\n" conan_components)
file(CONFIGURE OUTPUT components.json CONTENT "{\n@conan_components@\n}\n" @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/components.json DESTINATION ${CMAKE_INSTALL_DATADIR}/shardmesh)
set(SHARDMESH_EXPORTED_COMPONENTS ${components})
if(SHARDMESH_BUILD_TOOLS)
  list(APPEND SHARDMESH_EXPORTED_COMPONENTS tools)
  install(TARGETS shardmesh_tool EXPORT shardmesh_toolsTargets RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(EXPORT shardmesh_toolsTargets NAMESPACE shardmesh:: DESTINATION ${cmake_dir})
endif()
if(SHARDMESH_WITH_C_API) # c_api/ installs it
  list(APPEND SHARDMESH_EXPORTED_COMPONENTS c_api)
endif()
if(SHARDMESH_CUDA_KERNELS_FOUND) # cuda_kernels/ installs it
  list(APPEND SHARDMESH_EXPORTED_COMPONENTS cuda_kernels)
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/installed_modules.cmake.in installed_modules.cmake @ONLY)
install(SCRIPT ${PROJECT_BINARY_DIR}/installed_modules.cmake)

list(JOIN SHARDMESH_JOINED_COMPONENTS " " SHARDMESH_JOINED_COMPONENTS)
list(JOIN SHARDMESH_EXPORTED_COMPONENTS " " SHARDMESH_EXPORTED_COMPONENTS)
list(JOIN SHARDMESH_EXPORTED_HOST_COMPONENTS " " SHARDMESH_EXPORTED_HOST_COMPONENTS)
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/shardmeshConfig.cmake.in
  shardmeshConfig.cmake
  INSTALL_DESTINATION ${cmake_dir}
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR modules_dir
)
write_basic_package_version_file(shardmeshConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(
  FILES
    ${PROJECT_BINARY_DIR}/shardmeshConfig.cmake
    ${PROJECT_BINARY_DIR}/shardmeshConfigVersion.cmake
    ${PROJECT_SOURCE_DIR}/cmake/check_toolchain.cmake
    ${PROJECT_SOURCE_DIR}/cmake/FindxxHash.cmake
    ${PROJECT_SOURCE_DIR}/cmake/FindISAL.cmake
    ${PROJECT_SOURCE_DIR}/cmake/FindRE2.cmake
    ${PROJECT_SOURCE_DIR}/cmake/FindMPIC.cmake
    ${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake
  DESTINATION ${cmake_dir}
)
include(cmake/pkg_config.cmake)
include(cmake/sbom.cmake)
# The printers for gdb (docs/debugging.md). Users load them by hand: gdb finds scripts only for shared libraries.
install(FILES ${PROJECT_SOURCE_DIR}/tools/gdb/shardmesh_printers.py DESTINATION ${CMAKE_INSTALL_DATADIR}/shardmesh/gdb)
