# SPDX-License-Identifier: Apache-2.0
# Writes a C++ source with the texts of files as string literals:
#
#   cmake -DFOLDER=page -DFILES=a.js,b.css -DOUT=page_parts.cpp -DHEADER=page_parts.hpp -DNAMESPACE=tool
#         -DTYPE=page_part -DFUNCTION=page_parts -P embed_texts.cmake
#
# HEADER declares NAMESPACE::TYPE, an aggregate of the file's name and its text, and `std::span<const TYPE> FUNCTION()`.
set(text "// Made by embed_texts.cmake.\n#include <${HEADER}>\n\nnamespace ${NAMESPACE} {\n\n")
string(APPEND text "std::span<const ${TYPE}> ${FUNCTION}() {\n  static constexpr ${TYPE} all[] = {\n")
string(REPLACE "," ";" files "${FILES}")
foreach(file IN LISTS files)
  file(READ ${FOLDER}/${file} content)
  string(APPEND text "      {\"${file}\", R\"shardmesh(${content})shardmesh\"},\n")
endforeach()
string(APPEND text "  };\n  return all;\n}\n\n}  // namespace ${NAMESPACE}\n")
file(WRITE ${OUT} "${text}")
