# SPDX-License-Identifier: Apache-2.0
# Installation: one export set, one config file; consumers do find_package(shardmesh) and link shardmesh::shardmesh.
include(CMakePackageConfigHelpers)
get_property(rooms GLOBAL PROPERTY SHARDMESH_ROOMS)
set(cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/shardmesh)
foreach(room IN LISTS rooms)
  get_target_property(has_headers ${room} HEADER_SETS)
  set(headers)
  if(has_headers)
    set(headers FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  endif()
  install(TARGETS ${room} EXPORT shardmeshTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET modules DESTINATION ${CMAKE_INSTALL_LIBDIR}/shardmesh/modules ${headers})
endforeach()
install(EXPORT shardmeshTargets NAMESPACE shardmesh:: DESTINATION ${cmake_dir} CXX_MODULES_DIRECTORY cxx-modules)
list(JOIN rooms " " SHARDMESH_EXPORTED_ROOMS)

# Components: find_package(shardmesh COMPONENTS mpi). Each has an export set of its own, so that a consumer who does not
# ask for it needs none of its dependencies.
get_property(components GLOBAL PROPERTY SHARDMESH_COMPONENTS)
foreach(component IN LISTS components)
  get_target_property(has_headers shardmesh_${component} HEADER_SETS)
  set(headers)
  if(has_headers)
    set(headers FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  endif()
  install(TARGETS shardmesh_${component} EXPORT shardmesh_${component}Targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET modules DESTINATION ${CMAKE_INSTALL_LIBDIR}/shardmesh/modules ${headers})
  install(EXPORT shardmesh_${component}Targets NAMESPACE shardmesh:: DESTINATION ${cmake_dir}
    CXX_MODULES_DIRECTORY cxx-modules-${component})
endforeach()
list(JOIN components " " SHARDMESH_EXPORTED_COMPONENTS)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/shardmeshConfig.cmake.in shardmeshConfig.cmake
  INSTALL_DESTINATION ${cmake_dir})
write_basic_package_version_file(shardmeshConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/shardmeshConfig.cmake ${PROJECT_BINARY_DIR}/shardmeshConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindxxHash.cmake ${PROJECT_SOURCE_DIR}/cmake/Findlibdeflate.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindRE2.cmake ${PROJECT_SOURCE_DIR}/cmake/FindMPIC.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake DESTINATION ${cmake_dir})
if(SHARDMESH_BUILD_TOOLS)
  install(TARGETS shardmesh_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
