# SPDX-License-Identifier: Apache-2.0
"""The reference as pages of markdown: one per type that users see, one per room with its functions, and the index."""
import re

from entries import comment_of, definition_page, definitions, group_page, heading, is_plain, members_of, specialised
from markdown_text import Anchors, fence, prose, summary
from reference import COMPONENTS, signature

MANY = 40  # a type that more functions take than this is everywhere: a list says nothing


class Pages:
    def __init__(self, reference):
        self.reference = reference
        self.anchors_of_functions, self.comments, self.words_of = {}, {}, {}
        self.members = []  # (type, member, anchor)
        self.bodies = {name: self.type(name, declarations) for name, declarations in reference.types.items()}
        self.rooms = {f"rooms/{room}.md": self.room(room) for room in reference.rooms}

    def all(self):
        """{path below reference/: text}"""
        pages = {"index.md": self.index(), **self.rooms}
        for name, body in self.bodies.items():
            pages[f"{name}.md"] = "\n".join([body, *self.uses(name)])
        return pages

    def function_link(self, d, room_prefix):
        return f"[`{d.name}`]({room_prefix}rooms/{d.room}.md#{self.anchors_of_functions[id(d)]})"

    def type(self, name, declarations):
        first = definitions(declarations)[0]
        kinds = {"type": "class" if "class " in first.text else "struct", "alias": "type alias"}
        anchors = Anchors()
        anchors.taken[name] = 1  # the page itself
        out = [f"# {name}\n",
               f"*{kinds.get(first.kind, first.kind)}* · `import {self.reference.importing(first)};` · "
               f"room [{first.room}](rooms/{first.room}.md) · `{first.file}`\n"]
        for i, d in enumerate(definitions(declarations)):
            if i > 0:
                out.append(f"## `{specialised(d)}`\n\n`{d.file}`\n")
            out.append(prose(d.comment if i > 0 else self.type_comment(d)))
            out.append(definition_page(d, anchors, lambda group, anchor: self.members.extend((name, m, anchor) for m in group)))
        return "\n".join(out)

    def uses(self, name):
        is_concept = self.reference.types[name][0].kind == "concept"
        takes, gives = [], []
        for d in self.reference.public:
            if d.kind == "function" and id(d) in self.anchors_of_functions:
                before, behind = signature(d)
                if name in behind or name in before and is_concept:
                    takes.append(d)
                elif name in before:
                    gives.append(d)
        for title, found in ("Functions that ask for it" if is_concept else "Functions that take it", takes), ("Functions that give it", gives):
            if len(found) > MANY:
                yield f"## {title}\n\n{len(found)}, in all rooms: see the [index](index.md#functions).\n"
            elif found:
                yield f"## {title}\n"
                groups = {}
                for d in found:
                    groups.setdefault((d.room, self.anchors_of_functions[id(d)]), []).append(d)
                for group in groups.values():
                    links = dict.fromkeys(self.function_link(d, "") for d in group)
                    what = summary(self.comments[id(group[0])])
                    yield f"- {', '.join(links)}{': ' + what if what else ''}"
                yield ""
        giving = dict.fromkeys(f"[`{of}::{m.name}`]({of}.md#{anchor})" for of, m, anchor in self.members
                               if of != name and m.kind == "function" and name in signature(m)[0])
        if 0 < len(giving) <= MANY and not is_concept:
            yield f"## Members that give it\n\n{', '.join(sorted(giving))}\n"
        named = sorted(other for other in self.reference.types if other != name and name in self.words(other))
        if 0 < len(named) <= MANY:
            yield "## Types that name it\n"
            yield ", ".join(f"[`{other}`]({other}.md)" for other in named) + "\n"

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
        reference = self.reference
        main = next((one for one in reference.interfaces if one.path == f"modules/{room}/{room}.cppm"), None)
        also = " (`import shardmesh;` shows the names that most programs need)" if room in reference.shown else ""
        anchors = Anchors()
        out = [f"# Room {room}\n", f"`import shardmesh.{room};`{also}\n"]
        if main:
            out.append(prose(main.head))
        mine = [definitions(ds)[0] for ds in reference.types.values() if definitions(ds)[0].room == room]
        if mine:
            out += ["## Types\n", "| name | |\n|---|---|"]
            out += [f"| [`{d.name}`](../{d.name}.md) | {self.brief(d)} |" for d in sorted(mine, key=lambda d: d.name)]
            out.append("")
        inner = reference.inner_types(room)
        if inner:
            out.append("## Types of the insides\n")
            for group in inner:
                for d in group:
                    out.append(heading(3, [d], anchors))
                    out.append(prose(d.comment))
                    out.append(fence(d.text + (" {\n" + d.body.strip("\n") + "\n};" if d.body and (d.kind == "enum" or is_plain(d)) else "")))
                    if d.kind == "type" and d.body and not is_plain(d):
                        out.append(fence("\n".join("\n".join(["// " + line for line in m.comment] + [m.text]) for m in members_of(d))))
        groups = reference.functions(room)
        file = None
        if groups:
            out.append("## Functions and constants\n")
        for group in groups:
            if group[0].file != file:
                file = group[0].file
                out.append(f"*`{file}`*\n")
            text = group_page(3, group, anchors)
            for d in group:
                self.anchors_of_functions[id(d)] = anchors.last
                self.comments[id(d)] = comment_of(group)
            out.append(text)
        return "\n".join(out)

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
            main = next((one for one in reference.interfaces if one.path == f"modules/{room}/{room}.cppm"), None)
            head = [re.sub(rf"^(shardmesh\.)?{room}: ", "", line) for line in main.head] if main else []
            out.append(f"| [{room}](rooms/{room}.md) | {summary(head)} |")
        out += ["", "## Types\n", "| name | room | |\n|---|---|---|"]
        for name in sorted(reference.types):
            d = definitions(reference.types[name])[0]
            out.append(f"| [`{name}`]({name}.md) | [{d.room}](rooms/{d.room}.md) | {self.brief(d)} |")
        out += ["", "## Functions\n"]
        links = {}
        for d in reference.public:
            if id(d) in self.anchors_of_functions and not d.name.startswith("operator"):
                links.setdefault(d.name, {}).setdefault(d.room, self.function_link(d, ""))
        out.append(",\n".join(" ".join(rooms.values()) for _, rooms in sorted(links.items())) + "\n")
        return "\n".join(out)
