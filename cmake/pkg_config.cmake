# SPDX-License-Identifier: Apache-2.0
# shardmesh.pc: the link line of `import shardmesh;` for builds without CMake. They compile the interfaces themselves,
# from the folder in the variable `modules`. Third parties are expected in the linker's default folders.
get_property(host_components GLOBAL PROPERTY SHARDMESH_HOST_COMPONENTS)

# Sets `result` to the archives of these components, each importer before its imports, and the flags of their
# dependencies.
function(shardmesh_link_line result)
  set(archives)
  set(flags)
  foreach(component IN LISTS ARGN)
    get_property(target GLOBAL PROPERTY SHARDMESH_TARGET_OF_${component})
    list(PREPEND archives -l${target})
    get_property(libraries GLOBAL PROPERTY SHARDMESH_LINKS_OF_${component})
    foreach(library IN LISTS libraries)
      get_property(flag GLOBAL PROPERTY SHARDMESH_FLAGS_OF_${library})
      list(APPEND flags ${flag})
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES flags)
  list(JOIN archives " " archives)
  list(JOIN flags " " flags)
  set(${result} "${archives} ${flags}" PARENT_SCOPE)
endfunction()
shardmesh_link_line(host_link_line ${host_components})
file(RELATIVE_PATH from_pkgconfig /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" from_pkgconfig "${from_pkgconfig}")
file(
  CONFIGURE
  OUTPUT shardmesh.pc
  @ONLY
  CONTENT
    [[prefix=${pcfiledir}/@from_pkgconfig@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@
modules=${libdir}/shardmesh/modules

Name: shardmesh
Description: @PROJECT_DESCRIPTION@
Version: @PROJECT_VERSION@
Cflags: -I${includedir}
Libs: -L${libdir} @host_link_line@
]]
)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/shardmesh.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
