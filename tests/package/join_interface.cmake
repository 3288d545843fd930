# SPDX-License-Identifier: Apache-2.0
# Run by ctest: partitions become the expected single file, and files that cannot be joined are refused in one line.
#   cmake -DSCRIPT=cmake/join_interface.cmake -DWORK=folder -P join_interface.cmake
file(REMOVE_RECURSE ${WORK})
file(
  WRITE ${WORK}/good/ship.cppm
  [[// SPDX-License-Identifier: Apache-2.0
// What a ship is.
export module some.ship;

export import some.wood;
export import :hull; // its body
export import :mast;

export namespace sea { using sea::hull; }
]]
)
file(
  WRITE ${WORK}/good/hull.cppm
  [[// SPDX-License-Identifier: Apache-2.0
// hull: below [the waterline; mostly].
module;
#include <some/nails.hpp>
export module some.ship:hull;

import some.std;
import some.wood;
import :mast;

export namespace sea { struct hull { mast of[2]; int a; }; }
]]
)
file(
  WRITE ${WORK}/good/mast.cppm
  [[export module some.ship:mast;
import some.std;
export namespace sea { struct mast {}; }
]]
)
include(${SCRIPT})
file(GLOB units ${WORK}/good/*.cppm)
shardmesh_join_interface(text "${units}")
set(
  expected
  [[// SPDX-License-Identifier: Apache-2.0
// What a ship is.
module;
#include <some/nails.hpp>
export module some.ship;

import some.std;
export import some.wood;

// ---- :mast


export namespace sea { struct mast {}; }

// ---- :hull
// hull: below [the waterline; mostly].

export namespace sea { struct hull { mast of[2]; int a; }; }

export namespace sea { using sea::hull; }
]]
)
if(NOT text STREQUAL expected)
  message(FATAL_ERROR "expected:\n${expected}found:\n${text}")
endif()

function(refuses name expected)
  file(
    WRITE ${WORK}/${name}.cmake
    "include(${SCRIPT})\nfile(GLOB units ${WORK}/${name}/*.cppm)\n"
    "shardmesh_join_interface(text \"\${units}\")\n"
  )
  execute_process(COMMAND ${CMAKE_COMMAND} -P ${WORK}/${name}.cmake RESULT_VARIABLE status ERROR_VARIABLE text OUTPUT_QUIET)
  string(REGEX REPLACE "[ \n]+" " " text "${text}")
  if(status EQUAL 0 OR NOT text MATCHES "${expected}")
    message(FATAL_ERROR "${name}: status ${status}, expected an error with '${expected}', found:\n${text}")
  endif()
endfunction()
file(WRITE ${WORK}/circle/a.cppm "export module m;\nexport import :b;\nexport import :c;\n")
file(WRITE ${WORK}/circle/b.cppm "export module m:b;\nimport :c;\n")
file(WRITE ${WORK}/circle/c.cppm "export module m:c;\nimport :b;\n")
refuses(circle "m: these partitions import each other, or one that is not there: b;c")
file(WRITE ${WORK}/hidden/a.cppm "export module m;\nimport :b;\n")
file(WRITE ${WORK}/hidden/b.cppm "export module m:b;\n")
refuses(hidden "m: no unit exports the partition b")
file(WRITE ${WORK}/define/a.cppm "module;\n#define NAILS 3\nexport module m;\n")
refuses(define "define/a.cppm: of directives, only #include")
file(WRITE ${WORK}/body/a.cppm "module m;\n")
refuses(body "body/a.cppm: not an interface unit of a module")
file(WRITE ${WORK}/two/a.cppm "export module m;\n")
file(WRITE ${WORK}/two/b.cppm "export module n;\n")
refuses(two "units of 2 modules cannot be joined: m;n")
