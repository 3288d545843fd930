# SPDX-License-Identifier: Apache-2.0
"""Writes a translation unit with the code in documents that is marked to be compiled.

    doc_code.py OUTPUT FILE.md...

The tests compile each C++ block after a line `<!-- compiled -->`, in its own namespace, after `import shardmesh;
using namespace shardmesh;`. Imports of rooms (`import shardmesh.kernels;`) that start a block go to the top of the unit.
Compiler messages refer to the document's file and line.
"""
import re
import sys
from pathlib import Path

HEADERS = ("chrono", "cstdint", "stop_token", "string", "utility", "vector")  # that any block may use
BLOCK = re.compile(r"^<!-- compiled -->\n```cpp\n(.*?)^```$", re.M | re.S)
ROOM = re.compile(r"^import shardmesh\.\w+;", re.M)


def blocks(file):
    text = file.read_text()
    if text.count("<!-- compiled -->") != len(BLOCK.findall(text)):
        sys.exit(f"{file}: a line <!-- compiled --> stands before no block of C++")
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start(1)) + 1
        yield f'#line {line} "{file}"\n{found.group(1)}'


def main(output, files):
    code = [block for file in files for block in blocks(Path(file))]
    rooms = sorted({room for block in code for room in ROOM.findall(block)})
    code = [ROOM.sub("", block) for block in code]
    if not code:
        sys.exit("no document has code to compile")
    named = [f"namespace block_{i} {{\n{block}}}  // namespace block_{i}\n" for i, block in enumerate(code)]
    head = "".join(f"#include <{name}>\n" for name in HEADERS) + "import shardmesh;\n" + "".join(f"{room}\n" for room in rooms)
    head += "using namespace shardmesh;\n\n"
    Path(output).write_text(head + "\n".join(named))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
