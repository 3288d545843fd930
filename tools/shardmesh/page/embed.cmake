# SPDX-License-Identifier: Apache-2.0
# cmake -DFOLDER=... -DFILES=a.js,b.css -DOUT=page_parts.cpp -P embed.cmake: the files' texts as string literals.
set(text "// Made of tools/shardmesh/page by embed.cmake.\n#include \"page_parts.hpp\"\n\nnamespace tool {\n\n")
string(APPEND text "std::span<const page_part> page_parts() {\n  static constexpr page_part all[] = {\n")
string(REPLACE "," ";" files "${FILES}")
foreach(file IN LISTS files)
  file(READ ${FOLDER}/${file} content)
  string(APPEND text "      {\"${file}\", R\"shardmesh(${content})shardmesh\"},\n")
endforeach()
string(APPEND text "  };\n  return all;\n}\n\n}  // namespace tool\n")
file(WRITE ${OUT} "${text}")
