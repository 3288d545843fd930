# SPDX-License-Identifier: Apache-2.0
# Finds MPI's C library (OpenMPI or another) and nothing else. CMake's own FindMPI needs the C language enabled; without
# it, FindMPI adds the C++ bindings and the compiler wrapper's flags, which must not reach modules. Defines MPIC::mpi,
# and MPIC_LAUNCHER (mpirun) if found. The wrapper (MPICC, or mpicc on the path) is used only to look up folders.
find_program(MPIC_WRAPPER NAMES $ENV{MPICC} mpicc)
set(MPIC_include_hints)
set(MPIC_library_hints)
if(MPIC_WRAPPER)
  foreach(kind IN ITEMS include library)
    set(question_include incdirs)
    set(question_library libdirs)
    execute_process(
      COMMAND ${MPIC_WRAPPER} --showme:${question_${kind}}
      RESULT_VARIABLE MPIC_status
      OUTPUT_VARIABLE MPIC_folders
      ERROR_QUIET
      OUTPUT_STRIP_TRAILING_WHITESPACE
    )
    if(MPIC_status EQUAL 0) # OpenMPI
      separate_arguments(MPIC_${kind}_hints UNIX_COMMAND "${MPIC_folders}")
    else() # MPICH and related implementations
      execute_process(COMMAND ${MPIC_WRAPPER} -show OUTPUT_VARIABLE MPIC_line ERROR_QUIET)
      set(flag_include -I)
      set(flag_library -L)
      string(REGEX MATCHALL "${flag_${kind}}[^ \n]+" MPIC_${kind}_hints "${MPIC_line}")
      list(TRANSFORM MPIC_${kind}_hints REPLACE "^-[IL]" "")
    endif()
  endforeach()
endif()
find_path(
  MPIC_INCLUDE_DIR
  NAMES mpi.h
  HINTS ${MPIC_include_hints}
  PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/include
  PATH_SUFFIXES mpi openmpi
)
find_library(MPIC_LIBRARY NAMES mpi HINTS ${MPIC_library_hints} PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/lib)
find_program(MPIC_LAUNCHER NAMES mpirun mpiexec)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(MPIC REQUIRED_VARS MPIC_LIBRARY MPIC_INCLUDE_DIR)
if(MPIC_FOUND AND NOT TARGET MPIC::mpi)
  add_library(MPIC::mpi UNKNOWN IMPORTED)
  set_target_properties(
    MPIC::mpi
    PROPERTIES IMPORTED_LOCATION "${MPIC_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${MPIC_INCLUDE_DIR}"
  )
endif()
mark_as_advanced(MPIC_WRAPPER MPIC_INCLUDE_DIR MPIC_LIBRARY MPIC_LAUNCHER)
