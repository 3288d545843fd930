# SPDX-License-Identifier: Apache-2.0
# shardmesh_c.pc: the compile and link flags of the C interface. A program that is linked with them also runs: they
# record the library's folder in it, except where the loader finds the library itself.
#
#   shardmesh_c_pkg_config(FOLDER folder LIBDIR lib INCLUDEDIR include [SYSTEM])
#
# Writes FOLDER/shardmesh_c.pc for a library in LIBDIR and headers in INCLUDEDIR, both relative to a prefix that may be
# moved. The file belongs in LIBDIR/pkgconfig. SYSTEM: the loader searches that folder.
function(shardmesh_c_pkg_config)
  cmake_parse_arguments(PARSE_ARGV 0 file "SYSTEM" "FOLDER;LIBDIR;INCLUDEDIR" "")
  set(libdir ${file_LIBDIR})
  set(includedir ${file_INCLUDEDIR})
  file(RELATIVE_PATH from_pkgconfig /${libdir}/pkgconfig /)
  string(REGEX REPLACE "/$" "" from_pkgconfig "${from_pkgconfig}")
  set(rpath " -Wl,-rpath,\${libdir}")
  if(file_SYSTEM)
    set(rpath)
  endif()
  configure_file(${PROJECT_SOURCE_DIR}/c_api/shardmesh_c.pc.in ${file_FOLDER}/shardmesh_c.pc @ONLY)
endfunction()
