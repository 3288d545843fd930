# SPDX-License-Identifier: Apache-2.0
# shardmesh_unoptimised(FOLDER): compiles the bodies of FOLDER's targets, and of the folders in it, without
# optimisation, in half the time. Code that tests the library need not be fast; the library is built as shipped. This is
# a property of files, not of targets: CMake would compile every interface again for a target with other options.
# Exceptions are files with their own options, and doubles of devices, which do the work of kernels (not their tests).
function(shardmesh_unoptimised folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if((target MATCHES "double" AND NOT target MATCHES "^unit_") OR NOT type MATCHES "EXECUTABLE|LIBRARY")
      continue()
    endif()
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.cpp$")
    foreach(source IN LISTS sources)
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder})
      get_source_file_property(options ${source} TARGET_DIRECTORY ${target} COMPILE_OPTIONS)
      if(NOT options)
        set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS -O0)
      endif()
    endforeach()
  endforeach()
  get_property(subfolders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(subfolder IN LISTS subfolders)
    shardmesh_unoptimised(${subfolder})
  endforeach()
endfunction()
