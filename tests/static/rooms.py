# SPDX-License-Identifier: Apache-2.0
"""Checks that the rooms of modules/ match docs/architecture.md. Nothing imports upward, no bodies import each other in a
circle, every interface partition is exported by its primary, primaries import nothing private, nothing is included
after a module declaration, and the map in docs/architecture.md shows the real imports.

    rooms.py ROOT            checks; prints errors, and returns nonzero
    rooms.py ROOT --write    writes the map into docs/architecture.md
"""
import re
import sys
from pathlib import Path

DECLARATION = re.compile(r"^(export )?module shardmesh(?:\.(\w+))?(?::(\w+))?;", re.M)
IMPORT = re.compile(r"^(export )?import (?:shardmesh\.(\w+)|:(\w+));", re.M)
MOST_FILES = 45  # per folder
BEGIN, END = "<!-- map of rooms: made by tests/static/rooms.py -->\n", "<!-- end of the map -->\n"


def declared_order(root):
    """Rooms as modules/CMakeLists.txt lists them, each with the rooms that it may import."""
    rooms = {}
    for name, words in re.findall(r"shardmesh_room\(\s*(\w+)([^)]*)\)", (root / "modules/CMakeLists.txt").read_text()):
        direct = re.search(r"IMPORTS ([\w ]+?)(?: LINKS|$)", " ".join(words.split()))
        below = set()
        for other in direct.group(1).split() if direct else []:
            if other in rooms:
                below |= {other} | rooms[other]
        rooms[name] = below
    return rooms


def circle_among(imports):
    """Returns the names on one circle of imports, or None. `imports` has the names that each name imports."""
    done = set()

    def visit(name, path):
        if name in path:
            return path[path.index(name):]
        if name in done:
            return None
        for other in sorted(imports.get(name, ())):
            if found := visit(other, path + [name]):
                return found
        done.add(name)
        return None

    for name in sorted(imports):
        if found := visit(name, []):
            return found
    return None


def check_room(root, room, below, say):
    """Returns the rooms that it imports."""
    folder = root / "modules" / room
    interfaces, private, exported, imported, seen = set(), set(), set(), set(), set()
    bodies = {}  # name -> the partitions that the body imports, except its own
    for inner in (folder, *(f for f in folder.iterdir() if f.is_dir())):
        if (count := sum(f.is_file() for f in inner.iterdir())) > MOST_FILES:
            say(f"{inner.relative_to(root)} has {count} files; a folder has at most {MOST_FILES}")
    for file in sorted(f for f in folder.rglob("*") if f.is_file()):
        if file.suffix == ".hpp":  # for a global module fragment
            continue
        if file.suffix == ".toml" and file.parent != folder:  # a text that the build compiles in
            continue
        if file.suffix not in (".cppm", ".cpp"):
            say(f"{file.relative_to(root)}: neither an interface (.cppm) nor a body (.cpp)")
            continue
        text = file.read_text()
        found = DECLARATION.search(text)
        if not found and file.suffix == ".cpp" and not IMPORT.search(text):
            continue  # the body of a header in include/
        if not found or found.group(2) != room:
            say(f"{file.relative_to(root)}: declares no module of the room {room}")
            continue
        is_primary = bool(found.group(1)) and not found.group(3)
        if file.suffix == ".cpp":
            bodies[file.stem] = {p for _, _, p in IMPORT.findall(text) if p} - {file.stem}
        if found.group(3):
            (interfaces if found.group(1) else private).add(found.group(3))
        for line in re.findall(r"^#include .*$", text[found.end():], re.M):
            say(f"{file.relative_to(root)}: {line} stands behind the module declaration")
        for is_exported, other, partition in IMPORT.findall(text):
            if other and other != "std" and other not in below:
                say(f"{file.relative_to(root)}: imports {other}, which is not below {room}")
            if other and other != "std":
                imported.add(other)
            if is_primary and partition:
                (exported if is_exported else seen).add(partition)
    if circle := circle_among(bodies):
        say(f"modules/{room}: the bodies {', '.join(circle)} import each other in a circle")
    for name in sorted(interfaces - exported):
        say(f"modules/{room}: the interface partition :{name} is not exported by the primary")
    for name in sorted(seen & private):
        say(f"modules/{room}: the primary imports the private partition :{name}")
    return imported


def map_of(imports):
    """A drawing: an arrow to each imported room, unless a room between implies it."""
    def all_below(room):
        found = set()
        for other in imports[room]:
            found |= {other} | all_below(other)
        return found

    lines = ["```mermaid", "flowchart BT"]
    for room in imports:
        nearest = {o for o in imports[room] if not any(o in all_below(p) for p in imports[room] if p != o)}
        lines += [f"  {room} --> {other}" for other in imports if other in nearest]
    return "\n".join(lines + ["```", ""])


def main(root, write):
    wrong = []
    rooms = declared_order(root)
    imports = {room: check_room(root, room, below, wrong.append) for room, below in rooms.items() if room != "std"}
    architecture = root / "docs/architecture.md"
    text = architecture.read_text()
    if BEGIN not in text or END not in text:
        sys.exit("docs/architecture.md has no place for the map of rooms")
    before, rest = text.split(BEGIN)
    drawn, after = rest.split(END)
    if write:
        architecture.write_text(before + BEGIN + map_of(imports) + END + after)
    elif drawn != map_of(imports):
        wrong.append("docs/architecture.md: the map of rooms differs from the imports; tests/static/rooms.py . --write")
    print("\n".join(wrong) or f"{len(rooms)} rooms are as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "--write" in sys.argv))
