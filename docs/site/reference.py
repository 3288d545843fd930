# SPDX-License-Identifier: Apache-2.0
"""What of the interfaces users see, and how its parts hang together: which page a name has, which functions take it."""
import re
from pathlib import Path

import interfaces

# Imported by name.
COMPONENTS = ("conformance", "mapping", "run", "replicas", "simulation", "remote", "mpi", "shared_memory", "torch", "kokkos",
              "cuda", "nccl", "devices")
TYPES = ("type", "enum", "concept", "alias")


def is_refusal(text):
    """A deleted overload, there for its message alone."""
    return "SHARDMESH_REFUSE" in text


class Reference:
    """Everything that modules/ exports. `types`: a user's types by name, each a list of its declarations, the definition
    first. `functions`: of a room, lists of declarations that have one comment."""

    def __init__(self, root):
        root = Path(root)
        files = sorted(root.glob("modules/**/*.cppm")) + sorted(root.glob("include/shardmesh/*.hpp"))
        read = [interfaces.read(file, file.relative_to(root).as_posix()) for file in files]
        self.interfaces = [one for one in read if one and one.room != "std"]
        self.rooms = sorted({one.room for one in self.interfaces if one.room})
        umbrella = "".join(file.read_text() for file in root.glob("modules/shardmesh.cppm"))
        self.shown = set(re.findall(r"^import shardmesh\.(\w+);", umbrella, re.M))  # rooms that it shows names of
        self.first = set(re.findall(r"^using shardmesh::(\w+);", umbrella, re.M))  # those names
        self.everything = [d for one in self.interfaces for d in self.own(one)]
        self.public = [d for d in self.everything if self.is_public(d)]
        self.types = {}
        for d in sorted(self.public, key=lambda d: not d.body and d.kind == "type"):
            if d.kind in TYPES:
                self.types.setdefault(d.name, []).append(d)

    def own(self, one):
        """What a file exports itself. Of headers: what a room says `using` of."""
        for d in one.declarations:
            d.room = one.room
            if "detail" in d.namespace.split("::") or not d.namespace.startswith("shardmesh"):
                continue
            if (d.exported or not one.room) and d.kind != "using" and not is_refusal(d.text):
                yield d

    def is_public(self, d):
        if d.namespace != "shardmesh":
            return False
        used = self.used()
        if d.name in used:
            d.room = d.room or used[d.name]
            return True
        return d.room in self.shown or d.room in COMPONENTS

    def used(self):
        """Names that an exported `using` shows, and the room that says it."""
        if not hasattr(self, "_used"):
            # Headers' names are those of the room whose partition `headers` exports them, wherever else they are said.
            ordered = sorted(self.interfaces, key=lambda one: not one.path.endswith("/headers.cppm"))
            self._used = {}
            for one in ordered:
                if one.room in self.shown or one.room in COMPONENTS:
                    for d in one.declarations:
                        if d.kind == "using" and d.exported:
                            self._used.setdefault(d.name, one.room)
        return self._used

    def importing(self, d):
        """What a program says to see the declaration."""
        return "shardmesh" if d.name in self.first else f"shardmesh.{d.room}"

    def groups(self, declarations):
        """Declarations that share a comment, in their order."""
        found = {}
        for d in declarations:
            found.setdefault((d.file, d.group), []).append(d)
        return list(found.values())

    def functions(self, room):
        """Of a room: groups of its functions and constants, by file."""
        public = {id(d) for d in self.public}
        mine = [d for d in self.everything if d.room == room and d.kind in ("function", "variable")]
        if room in self.shown or room in COMPONENTS:
            mine = [d for d in mine if id(d) in public]
        return self.groups(mine)

    def inner_types(self, room):
        """Types of a room that are no user's: they have no page of their own."""
        public = {id(d) for d in self.public}
        return self.groups([d for d in self.everything if d.room == room and d.kind in TYPES and id(d) not in public])


WORD = re.compile(r"\w+")


def signature(d):
    """(words before the name: what it returns and its constraints, words behind: what it takes)."""
    if not d.words:
        d.words = words_of(d)
    return d.words


def words_of(d):
    """What `signature` gives; it is asked for every pair of a type and a function."""
    text = re.sub(r"//[^\n]*", "", d.text)
    at = re.search(re.escape(d.name) + r"\s*\(", text)
    if not at:
        return set(), set()
    return set(WORD.findall(text[:at.start()])), set(WORD.findall(text[at.end():]))
