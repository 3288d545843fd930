# SPDX-License-Identifier: Apache-2.0
"""The reference as pages of markdown: one per type that users see, one per room with its functions, and the index."""
import re

import interfaces
from reference import COMPONENTS, is_refusal, signature

TAG = re.compile(r"\\(param|returns|errors)\b ?(\w+)?")
LABEL = re.compile(r"^(Cost|Source|Precondition|Preconditions|Complexity): ?")
MANY = 40  # a type that more functions take than this is everywhere: a list says nothing


def escaped(text):
    """Prose of a comment as markdown: what stands between backticks as it is."""
    parts = re.split(r"(`[^`]*`)", text)
    for i in range(0, len(parts), 2):
        part = re.sub(r"[\\*_\[\]<>|#]", lambda m: "\\" + m.group(), parts[i])
        parts[i] = re.sub(r"\berrc::((?:\w|\\_)+)", lambda m: f"`errc::{m.group(1)}`".replace("\\", ""), part)
    return "".join(parts)


def prose(lines):
    """A comment as markdown. Paragraphs, lists and indented code stay; \\param, \\returns, \\errors and Cost: are labels."""
    out, code = [], False
    text = re.sub(r"(?<=\S) (?=\\(?:errors|returns)\b)", "\n", "\n".join(lines))
    for line in text.split("\n"):
        if re.match(r" {4,}\S", line) and (code or not out or out[-1].rstrip().endswith(":")):
            if not code:
                out.append("\n```cpp")
            code = True
            out.append(line[4:])
            continue
        if code:
            out.append("```\n")
            code = False
        tag, label = TAG.match(line), LABEL.match(line)
        if tag and tag.group(1) == "param":
            out.append(f"\n- `{tag.group(2)}`: {escaped(line[tag.end():].strip())}")
        elif tag:
            rest = line[len(tag.group(1)) + 1:].strip()
            out.append(f"\n**{tag.group(1).capitalize()}:** {escaped(rest)}")
        elif label:
            out.append(f"\n**{label.group(1)}:** {escaped(line[label.end():])}")
        elif re.match(r" *- ", line):
            first = not out or not re.match(r"\s*- ", out[-1])
            out.append(("\n" if first else "") + "- " + escaped(line.strip()[2:]))
        else:
            out.append(escaped(line.strip()))
    if code:
        out.append("```\n")
    return "\n".join(out).strip() + "\n" if any(line.strip() for line in out) else ""


def summary(lines):
    """The first sentence, for tables."""
    text = " ".join(" ".join(lines).split())
    end = re.search(r"(?<!\.)[.:;](?= (?![a-z.0-9])|$)", text.split(" \\")[0])
    return escaped(text.split(" \\")[0][:end.start() if end else None].strip().rstrip(":"))


def fence(text):
    return f"```cpp\n{text}\n```\n"


def slug(name):
    operators = {"=": "eq", "<": "lt", ">": "gt", "*": "star", "-": "minus", "+": "plus", "[": "at", "(": "call", "!": "not", "&": "and", "|": "or", " ": "-", "/": "by"}
    return "".join(operators.get(c, c if re.match(r"[\w-]", c) else "") for c in name)


class Anchors:
    """An anchor of its own for each heading of a page."""

    def __init__(self):
        self.taken = {}

    def of(self, name):
        number = self.taken[name] = self.taken.get(name, 0) + 1
        return slug(name) + (f"-{number}" if number > 1 else "")


def names_in(group):
    return list(dict.fromkeys(d.name for d in group))


def heading(level, group, anchors):
    names = names_in(group)
    return f"{'#' * level} {', '.join(f'`{name}`' for name in names)} {{#{anchors.of(names[0])}}}\n"


def comment_of(group):
    return next((d.comment for d in group if d.comment), [])


def group_page(level, group, anchors):
    return "\n".join([heading(level, group, anchors), fence("\n".join(d.text for d in group)), prose(comment_of(group))])


def members_of(d):
    """The public members of a class: declarations with their kind; those of access are left out."""
    public, found = "class " not in interfaces.flat(d.text).split(":")[0] + " ", []
    for one in interfaces.Walk(d.body).all():
        if one.kind == "access":
            public = one.name == "public" if one.name in ("public", "private", "protected") else public
        elif public and not is_refusal(one.text) and one.text.strip() and not one.text.startswith(("friend class", "friend struct")):
            found.append(one)
    return found


def is_plain(d):
    """A struct of fields: its definition says it all."""
    return all(m.kind in ("variable", "alias", "other") or m.text.startswith(("friend", "bool operator", "constexpr bool operator")) for m in members_of(d)) and "class " not in d.text


def enumerators(d):
    """(name, what stands behind it) of each."""
    body = d.body if "\n" in d.body.strip() or "//" in d.body else re.sub(r", *", ",\n", d.body.strip())
    return re.findall(r"^ *(\w+)(?: = [^,/\n]*)?,? *(?://+ ?([^\n]*))?$", body, re.M)


def definition_page(d, anchors):
    out = []
    if d.kind == "enum":
        values = enumerators(d)
        if any(text for _, text in values):
            rows = [f'| <a id="{name}"></a>`{name}` | {escaped(text)} |' for name, text in values]
            out += [fence(d.text + ";"), "| value | |\n|---|---|", *rows, ""]
        else:
            out.append(fence(d.text + " {" + d.body + "};"))
    elif d.kind == "type" and d.body and is_plain(d):
        lines = [line for line in d.body.strip("\n").splitlines()]
        out.append(fence(d.text + " {\n" + "\n".join(lines) + "\n};"))
    elif d.kind == "type" and d.body:
        out.append(fence(d.text + ";"))
        out.append("## Members\n" if d.text.count("<>") == 0 else f"### Members of `{interfaces.flat(d.text)}`\n")
        mine = members_of(d)
        grouped = {}
        for m in mine:
            grouped.setdefault(m.group, []).append(m)
        for group in grouped.values():
            for m in group:
                if m.kind in ("type", "enum") and m.body:
                    m.text += " {" + m.body.rstrip() + "\n};"
                m.name = m.name or "other"
            out.append(group_page(3, group, anchors))
    else:
        out.append(fence(d.text + (";" if not d.text.rstrip().endswith((";",)) and "//" not in d.text else "")))
    return "\n".join(out)


class Pages:
    def __init__(self, reference):
        self.reference = reference
        self.anchors_of_functions, self.comments, self.words_of = {}, {}, {}
        self.rooms = {f"rooms/{room}.md": self.room(room) for room in reference.rooms}

    def all(self):
        """{path below reference/: text}"""
        pages = {"index.md": self.index(), **self.rooms}
        for name, declarations in self.reference.types.items():
            pages[f"{name}.md"] = self.type(name, declarations)
        return pages

    def function_link(self, d, room_prefix):
        return f"[`{d.name}`]({room_prefix}rooms/{d.room}.md#{self.anchors_of_functions[id(d)]})"

    def type(self, name, declarations):
        first = declarations[0]
        kinds = {"type": "class" if "class " in first.text else "struct", "alias": "type alias"}
        anchors = Anchors()
        anchors.taken[name] = 1  # the page itself
        out = [f"# {name}\n",
               f"*{kinds.get(first.kind, first.kind)}* · `import {self.reference.importing(first)};` · "
               f"room [{first.room}](rooms/{first.room}.md) · `{first.file}`\n"]
        whole = [d for d in declarations if d.body or d.kind != "type"] or declarations
        for i, d in enumerate(whole):
            if i > 0:
                out.append(f"## `{re.sub(r'^template |^class |^struct ', '', ' '.join(d.text.split()))}`\n")
            comment = d.comment or next((other.comment for other in declarations if other.comment), [])
            out.append(prose(comment))
            out.append(definition_page(d, anchors))
        out += self.uses(name)
        return "\n".join(out)

    def uses(self, name):
        takes, gives = [], []
        for d in self.reference.public:
            if d.kind == "function" and id(d) in self.anchors_of_functions:
                before, behind = signature(d)
                if name in behind:
                    takes.append(d)
                elif name in before:
                    gives.append(d)
        for title, found in ("Functions that take it", takes), ("Functions that give it", gives):
            if len(found) > MANY:
                yield f"## {title}\n\n{len(found)}, in all rooms: see the [index](index.md#functions).\n"
            elif found:
                yield f"## {title}\n"
                seen = set()
                for d in found:
                    key = self.function_link(d, "")
                    if key not in seen:
                        seen.add(key)
                        what = summary(self.comments.get(id(d), []))
                        yield f"- {key}{': ' + what if what else ''}"
                yield ""
        named = sorted(other for other in self.reference.types if other != name and name in self.words(other))
        if 0 < len(named) <= MANY:
            yield "## Types that name it\n"
            yield ", ".join(f"[`{other}`]({other}.md)" for other in named) + "\n"

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
        imported = "shardmesh" if room in reference.shown else f"shardmesh.{room}"
        anchors = Anchors()
        out = [f"# Room {room}\n", f"`import {imported};`\n"]
        if main:
            out.append(prose(main.head))
        mine = [ds[0] for ds in reference.types.values() if ds[0].room == room]
        if mine:
            out += ["## Types\n", "| name | |\n|---|---|"]
            out += [f"| [`{d.name}`](../{d.name}.md) | {summary(self.type_comment(d))} |" for d in sorted(mine, key=lambda d: d.name)]
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
            named = names_in(group)[0]
            text = group_page(3, group, anchors)
            number = anchors.taken[named]
            for d in group:
                self.anchors_of_functions[id(d)] = slug(named) + (f"-{number}" if number > 1 else "")
                self.comments[id(d)] = comment_of(group)
            out.append(text)
        return "\n".join(out)

    def type_comment(self, d):
        return d.comment or next((other.comment for other in self.reference.types[d.name] if other.comment), [])

    def index(self):
        reference = self.reference
        out = ["# Reference\n",
               "Made from the comments of the interfaces. `import shardmesh;` shows all but the optional components "
               f"({', '.join(f'`shardmesh.{name}`' for name in COMPONENTS)}) and the insides of formats.\n",
               "## Rooms\n", "| room | |\n|---|---|"]
        for room in reference.rooms:
            main = next((one for one in reference.interfaces if one.path == f"modules/{room}/{room}.cppm"), None)
            head = [re.sub(rf"^(shardmesh\.)?{room}: ", "", line) for line in main.head] if main else []
            out.append(f"| [{room}](rooms/{room}.md) | {summary(head)} |")
        out += ["", "## Types\n", "| name | room | |\n|---|---|---|"]
        for name in sorted(reference.types):
            d = reference.types[name][0]
            out.append(f"| [`{name}`]({name}.md) | [{d.room}](rooms/{d.room}.md) | {summary(self.type_comment(d))} |")
        out += ["", "## Functions\n"]
        links = {}
        for d in reference.public:
            if id(d) in self.anchors_of_functions and not d.name.startswith("operator"):
                links.setdefault(d.name, {}).setdefault(d.room, self.function_link(d, ""))
        out.append(",\n".join(" ".join(rooms.values()) for _, rooms in sorted(links.items())) + "\n")
        return "\n".join(out)
