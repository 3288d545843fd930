# SPDX-License-Identifier: Apache-2.0
# Compiles SOURCE to PTX with NVCC, and checks that it has 16-byte loads and stores of global memory.
get_filename_component(name ${SOURCE} NAME_WE)
set(ptx ${WORK}/${name}.ptx)
file(MAKE_DIRECTORY ${WORK})
execute_process(
  COMMAND
    ${NVCC} -x cu -std=c++17 -arch=sm_90 -Werror all-warnings -Xcompiler -Wall,-Wextra -I ${INCLUDE} -ptx ${SOURCE} -o ${ptx}
  RESULT_VARIABLE status
  OUTPUT_VARIABLE said
  ERROR_VARIABLE said
)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "nvcc: ${said}")
endif()
foreach(kind ld st)
  file(STRINGS ${ptx} found REGEX "${kind}\\.global[.a-z]*(\\.v4\\.[bu]32|\\.b128)")
  list(LENGTH found count)
  if(count EQUAL 0)
    message(FATAL_ERROR "there is no 16-byte ${kind}.global in the PTX")
  endif()
  message(STATUS "16-byte ${kind}.global: ${count}")
endforeach()
