# SPDX-License-Identifier: Apache-2.0
# Finds Kokkos for the room kokkos: the user's (Kokkos_ROOT, CMAKE_PREFIX_PATH), the system's, or, last, the wheel that
# `./dev setup` installs. Sets Kokkos_FOUND; if it is false, SHARDMESH_KOKKOS_MISSING holds the reason.
function(shardmesh_find_kokkos)
  # Kokkos's package ends the configuration if the OpenMP that it was built with is missing; AUTO must not.
  find_package(OpenMP QUIET COMPONENTS CXX)
  if(
    SHARDMESH_WITH_KOKKOS STREQUAL "AUTO"
    AND NOT OpenMP_CXX_FOUND
    AND NOT DEFINED Kokkos_ROOT
    AND NOT DEFINED ENV{Kokkos_ROOT}
  )
    set(why "the compiler has no OpenMP, which most builds of Kokkos need (Debian: libomp-19-dev)")
  else()
    file(GLOB of_setup ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/pygenten/lib*/cmake)
    set(CMAKE_CXX_EXTENSIONS OFF) # in this function only: Kokkos's package otherwise forces it into the cache
    find_package(Kokkos CONFIG QUIET PATHS ${of_setup})
    set(why "no Kokkos was found (Kokkos_ROOT names one; ./dev setup test brings one)")
    if(Kokkos_FOUND AND Kokkos_VERSION VERSION_LESS 4.2)
      set(why "Kokkos ${Kokkos_VERSION} (${Kokkos_DIR}) is older than 4.2")
      set(Kokkos_FOUND FALSE)
    endif()
  endif()
  if(Kokkos_FOUND)
    message(STATUS "Kokkos ${Kokkos_VERSION} (${Kokkos_DIR}): ${Kokkos_DEVICES}")
  elseif(SHARDMESH_WITH_KOKKOS STREQUAL "AUTO")
    message(STATUS "the room kokkos is not built: ${why}")
  else()
    message(FATAL_ERROR "SHARDMESH_WITH_KOKKOS is ${SHARDMESH_WITH_KOKKOS}: ${why}")
  endif()
  set(Kokkos_FOUND "${Kokkos_FOUND}" PARENT_SCOPE)
  set(Kokkos_VERSION "${Kokkos_VERSION}" PARENT_SCOPE)
  set(Kokkos_DEVICES "${Kokkos_DEVICES}" PARENT_SCOPE)
  set(SHARDMESH_KOKKOS_MISSING "${why}" PARENT_SCOPE)
endfunction()

if(SHARDMESH_WITH_KOKKOS)
  shardmesh_find_kokkos()
else()
  set(SHARDMESH_KOKKOS_MISSING "SHARDMESH_WITH_KOKKOS is ${SHARDMESH_WITH_KOKKOS}")
endif()
