# SPDX-License-Identifier: Apache-2.0
"""The reference as pages of markdown: the index, a page per room, and in each room a page per group of declarations.

A group is an interface file of a room, with the public header of the same name: types, then functions and constants.
"""
import re
from pathlib import PurePath

from entries import comment_of, definition_page, definitions, group_page, inner_page, members_of, specialised
from markdown_text import Anchors, prose, summary
from reference import COMPONENTS, signature

MANY = 40  # a type that more functions take than this is everywhere: a list says nothing


def group_of(d):
    """(room, group) of a declaration."""
    return d.room, PurePath(d.file).stem


class Pages:
    def __init__(self, reference):
        self.reference = reference
        self.places = {}  # of a declaration's id: "room/group.md#anchor"
        self.comments, self.words_of = {}, {}
        self.members = []  # (type, member, place)
        self.heads = {(one.room, PurePath(one.path).stem): one.head for one in reference.interfaces if one.room}
        self.files_of = {}  # of a group: the files of its declarations, in order
        for d in reference.everything:
            self.files_of.setdefault(group_of(d), {})[d.file] = None
        self.groups = self.all_groups()
        # Bodies first: lists of uses need the places of all functions.
        self.bodies = {key: self.body(key, *parts) for key, parts in self.groups.items()}

    def all_groups(self):
        """{(room, group): (names of public types, inner types, functions)}, in the order of rooms and files."""
        found = {}

        def of(d):
            return found.setdefault(group_of(d), ([], [], []))

        reference = self.reference
        for room in reference.rooms:
            for name, declarations in reference.types.items():
                first = definitions(declarations)[0]
                if first.room == room:
                    of(first)[0].append(name)
            for kind, groups in (1, reference.inner_types(room)), (2, reference.functions(room)):
                for group in groups:
                    of(group[0])[kind].append(group)
        return dict(sorted(found.items()))

    def all(self):
        """{path below reference/: text}"""
        pages = {"index.md": self.index(), **{f"{room}/index.md": self.room(room) for room in self.reference.rooms}}
        for (room, group), sections in self.bodies.items():
            text = "\n".join(line for name, section in sections for line in [section, *(self.uses(name) if name else [])])
            pages[f"{room}/{group}.md"] = text
        return pages

    def names(self):
        """{"types": {name: place}, "functions": {name: place}}: the names that code on any page leads to."""
        types = {name: self.place_of_type(name) for name in self.reference.types}
        functions = {}
        for (room, _), (_, _, groups) in self.groups.items():
            if room in self.reference.shown or room in ("nccl", "torch"):
                for d in (d for group in groups for d in group):
                    functions.setdefault(d.name, self.places[id(d)])
        return {"types": types, "functions": functions}

    def place_of_type(self, name):
        return self.places[id(definitions(self.reference.types[name])[0])]

    def link(self, d, up):
        return f"[`{d.name}`]({up}{self.places[id(d)]})"

    def body(self, key, types, inner, functions):
        """[(name of a public type or "", section)]"""
        page, anchors = "/".join(key) + ".md", Anchors()
        for name in types:  # a type has its own name as its anchor, whatever its members are called
            anchors.taken[name] = 1
            self.places[id(definitions(self.reference.types[name])[0])] = f"{page}#{name}"
        sections = [("", self.head(key))]
        sections += [(name, self.type(name, anchors, page)) for name in types]
        for group in inner:
            sections.append(("", "\n".join(inner_page(d, anchors) for d in group)))
        for group in functions:
            text = group_page(2, group, anchors)
            for d in group:
                self.places[id(d)] = f"{page}#{anchors.last}"
                self.comments[id(d)] = comment_of(group)
            sections.append(("", text))
        return sections

    def said_of(self, room, group):
        """What the group's file says of itself."""
        return [re.sub(rf"^(shardmesh\.)?{group}: ", "", line) for line in self.heads.get((room, group), [])]

    def head(self, key):
        room, group = key
        files = ", ".join(f"`{file}`" for file in self.files_of.get(key, ()))
        return f"# {group}\n\nRoom [{room}](index.md) · `import shardmesh.{room};` · {files}\n\n{prose(self.said_of(*key))}"

    def type(self, name, anchors, page):
        declarations = self.reference.types[name]
        first = definitions(declarations)[0]
        kinds = {"type": "class" if "class " in first.text else "struct", "alias": "type alias"}
        out = [f"## `{name}` {{#{name}}}\n",
               f"*{kinds.get(first.kind, first.kind)}* · `import {self.reference.importing(first)};`\n"]
        for i, d in enumerate(definitions(declarations)):
            if i > 0:
                out.append(f"### `{specialised(d)}` {{#{anchors.of(name)}}}\n\n`{d.file}`\n")
            out.append(prose(d.comment if i > 0 else self.type_comment(d)))
            said = lambda group, anchor: self.members.extend((name, m, f"{page}#{anchor}") for m in group)
            out.append(definition_page(d, anchors, said))
        return "\n".join(out)

    def uses(self, name):
        is_concept = self.reference.types[name][0].kind == "concept"
        takes, gives = [], []
        for d in self.reference.public:
            if d.kind == "function" and id(d) in self.places:
                before, behind = signature(d)
                if name in behind or name in before and is_concept:
                    takes.append(d)
                elif name in before:
                    gives.append(d)
        for title, found in ("Functions that ask for it" if is_concept else "Functions that take it", takes), ("Functions that give it", gives):
            if len(found) > MANY:
                yield f"**{title}:** {len(found)}, in all rooms. See the [index](../index.md#functions).\n"
            elif found:
                yield f"**{title}:**\n"
                groups = {}
                for d in found:
                    groups.setdefault(self.places[id(d)], []).append(d)
                for group in groups.values():
                    links = dict.fromkeys(self.link(d, "../") for d in group)
                    what = summary(self.comments[id(group[0])])
                    yield f"- {', '.join(links)}{': ' + what if what else ''}"
                yield ""
        giving = dict.fromkeys(f"[`{of}::{m.name}`](../{place})" for of, m, place in self.members
                               if of != name and m.kind == "function" and name in signature(m)[0])
        if 0 < len(giving) <= MANY and not is_concept:
            yield f"**Members that give it:** {', '.join(sorted(giving))}\n"
        named = sorted(other for other in self.reference.types if other != name and name in self.words(other))
        if 0 < len(named) <= MANY:
            yield "**Types that name it:** " + ", ".join(f"[`{other}`](../{self.place_of_type(other)})" for other in named) + "\n"

    def brief(self, d):
        """What a table says of a type: its first sentence, or else which functions take it."""
        if not self.type_comment(d):
            takers = dict.fromkeys(f.name for f in self.reference.public if f.kind == "function" and d.name in signature(f)[1])
            return f"Taken by {', '.join(f'`{name}`' for name in list(takers)[:4])}" if takers and d.kind == "type" else ""
        return summary(self.type_comment(d))

    def words(self, name):
        """The words of a type's public part."""
        if name not in self.words_of:
            parts = [part for d in self.reference.types[name] for part in
                     [d.text, *(m.text for m in (members_of(d) if d.kind == "type" else []))]]
            self.words_of[name] = set(re.findall(r"\w+", re.sub(r"//[^\n]*", "", "\n".join(parts))))
        return self.words_of[name]

    def room(self, room):
        also = " (`import shardmesh;` shows the names that most programs need)" if room in self.reference.shown else ""
        out = [f"# Room {room}\n", f"`import shardmesh.{room};`{also}\n", prose(self.said_of(room, room)),
               "| group | names |\n|---|---|"]
        for (of, group), (types, inner, functions) in self.groups.items():
            if of == room:
                known = [*(definitions(self.reference.types[name])[0] for name in types), *(d for one in functions for d in one)]
                names = {d.name: self.link(d, "../") for d in reversed(known)} | {d.name: f"`{d.name}`" for one in inner for d in one}
                order = dict.fromkeys(d.name for d in [*known, *(d for one in inner for d in one)])
                shown = ", ".join(names[name] for name in order if not name.startswith("operator"))
                out.append(f"| [{group}]({group}.md) | {shown} |")
        return "\n".join(out) + "\n"

    def type_comment(self, d):
        of_all = [other.comment for other in self.reference.types[d.name] if not specialised(other)]
        return d.comment or next((comment for comment in of_all if comment), [])

    def index(self):
        reference = self.reference
        out = ["# Reference\n",
               "Made from the comments of the interfaces. `import shardmesh;` shows the names that most programs need, and "
               "`import shardmesh.ROOM;` all names of a room. Optional components "
               f"({', '.join(f'`shardmesh.{name}`' for name in COMPONENTS)}) and the insides of formats have only their "
               "own imports.\n",
               "## Rooms\n", "| room | |\n|---|---|"]
        for room in reference.rooms:
            out.append(f"| [{room}]({room}/index.md) | {summary(self.said_of(room, room))} |")
        out += ["", "## Types\n", "| name | room | |\n|---|---|---|"]
        for name in sorted(reference.types):
            d = definitions(reference.types[name])[0]
            out.append(f"| {self.link(d, '')} | [{d.room}]({d.room}/index.md) | {self.brief(d)} |")
        out += ["", "## Functions\n"]
        links = {}
        for d in reference.public:
            if d.kind in ("function", "variable") and id(d) in self.places and not d.name.startswith("operator"):
                links.setdefault(d.name, {}).setdefault(d.room, self.link(d, ""))
        out.append(",\n".join(" ".join(rooms.values()) for _, rooms in sorted(links.items())) + "\n")
        return "\n".join(out)
