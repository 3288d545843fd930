# SPDX-License-Identifier: Apache-2.0
# shardmesh_long_tests_first(FOLDER): gives the tests of FOLDER, and of the folders in it, a COST by which ctest orders
# them. Tests with PROCESSORS start before all others: while tests of one processor remain, ctest gives each free
# processor to one of them, so that two processors are never free together. Those tests would then run at the end, one
# after the other. ctest starts tests with FIXTURES_SETUP even earlier, so they also get two processors, except for the
# site, whose build has one thread. The longest of the others follow, then other scripts and groups of processes. The
# tests of one Catch2 case each, which are short, have no COST: they fill the gaps, so that no test runs alone at the
# end. ctest also measures costs, but a new build has none. With fewer than four cores, tests with PROCESSORS run one at
# a time: two groups of ranks would miss their deadlines.
function(shardmesh_long_tests_first folder)
  cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
  get_property(tests DIRECTORY ${folder} PROPERTY TESTS)
  foreach(test IN LISTS tests)
    set(cost 0)
    if(
      test
        MATCHES
        "^(docs: the documentation site builds|gpu kit: it is made|package: (cmake --install|a debug consumer|conan)|shared_memory: (a rank is killed|the distributed suite)|python: (ending|rank_redistribute)|oracle: (conversions|hostile|remote_faults|remote_s3)|mpi: mpi_distributed on 4|gpu: kernels, emulated)"
    )
      set(cost 100)
    elseif(
      test MATCHES "^(cuda|compiles for CUDA|docs|gpu kit|mpi|mutants|nccl|oracle|package|pages|python|shared_memory|torch): "
    )
      set(cost 10)
    endif()
    get_property(processors TEST "${test}" DIRECTORY ${folder} PROPERTY PROCESSORS)
    get_property(fixture TEST "${test}" DIRECTORY ${folder} PROPERTY FIXTURES_SETUP)
    if(fixture AND NOT processors GREATER 1 AND NOT test MATCHES "^docs: ")
      set(processors 2)
      set_tests_properties("${test}" DIRECTORY ${folder} PROPERTIES PROCESSORS ${processors})
    endif()
    if(processors GREATER 1)
      math(EXPR cost "${cost} + 1000")
      if(cores LESS 4)
        set_property(TEST "${test}" DIRECTORY ${folder} APPEND PROPERTY RESOURCE_LOCK both_cores)
      endif()
    endif()
    if(cost GREATER 0)
      set_tests_properties("${test}" DIRECTORY ${folder} PROPERTIES COST ${cost})
    endif()
  endforeach()
  get_property(subfolders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(subfolder IN LISTS subfolders)
    shardmesh_long_tests_first(${subfolder})
  endforeach()
endfunction()
