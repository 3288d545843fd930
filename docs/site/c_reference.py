# SPDX-License-Identifier: Apache-2.0
"""The reference of the C interface and of its C++17 wrapper, made from the headers of include/shardmesh/c_api."""
import re
import textwrap
from pathlib import Path

import interfaces
from entries import heading, is_plain, members_of
from markdown_text import Anchors, fence, prose

FOLDER = "include/shardmesh/c_api"
MACROS = re.compile(r"SHARDMESH_C_(EXPORT|BEGIN|END)$|.*_H$")  # these are no user's
# What the wrapper's own functions use; a program has no need of them.
PLUMBING = {"errors_of", "error_slot", "checked", "watched_call", "c_text", "pointers", "free_with", "made_handle"}
COMMENT = re.compile(r"[ \t]*/\*(.*?)\*/[ \t]*\n", re.S)
EMPTY = re.compile(r"[ \t]*\n")
DEFINE = re.compile(r"#define (\w+)[^\n]*\n")
SKIPPED = re.compile(r"(?:#[^\n]*|SHARDMESH_C_BEGIN|SHARDMESH_C_END)\n")
END = re.compile(r"([ \t]*/\*[^\n]*?\*/)?[ \t]*\n")  # of a declaration, with the comment behind it
NAME = re.compile(r"\b(shardmesh_\w+)\(|\} (shardmesh_\w+);|^typedef [\w ]+ (shardmesh_\w+);|^#define (\w+)", re.M)


def lines_of(comment):
    return [re.sub(r"^ ?\*? ?", "", line) for line in comment.strip().split("\n")]


def closing(text, at):
    """Behind the semicolon that ends the declaration at `at`."""
    depth = 0
    while text[at] != ";" or depth:
        if text.startswith("/*", at):
            at = text.index("*/", at) + 1
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at + 1


def entries(text):
    """(lines of its comment, its declarations) of each entry of a C header; declarations in a row share an entry if no
    comment or empty line stands between them. The first two comments are the licence and the header's own."""
    found, at = [], 0

    def begin(comment):
        if found and not found[-1][1]:
            found.pop()  # a comment of nothing
        found.append((comment, []))

    while at < len(text):
        if match := COMMENT.match(text, at):
            begin(lines_of(match.group(1)))
        elif match := EMPTY.match(text, at):
            begin([])
        elif match := DEFINE.match(text, at):
            if not MACROS.match(match.group(1)):
                found[-1][1].append(match.group().rstrip())
        elif not (match := SKIPPED.match(text, at)):
            end = closing(text, at)
            match = END.match(text, end)
            found[-1][1].append(text[at:end] + (match.group(1) or ""))
        at = match.end()
    return [(comment, declarations) for comment, declarations in found if declarations]


def names_of(declarations):
    return [next(filter(None, match.groups())) for one in declarations if (match := NAME.search(one))]


def shown(declaration):
    """A function without the export macro, and with lines that are wrapped anew."""
    if not declaration.startswith("SHARDMESH_C_EXPORT "):
        return declaration
    line = " ".join(declaration.removeprefix("SHARDMESH_C_EXPORT ").split())
    line = line.replace("* ", "*\u00a0")  # a name stays with its type
    return textwrap.fill(line, 100, subsequent_indent="    ", break_long_words=False).replace("\u00a0", " ")


def head_of(text):
    """The header's own comment."""
    return lines_of(COMMENT.findall(text)[1])


def c_page(root):
    umbrella = (root / "include/shardmesh/c_api.h").read_text()
    out = ["# The C interface: reference\n", "Made from the comments of the headers; `#include <shardmesh/c_api.h>` includes "
           "all of them. [The C interface](../../c_api.md) shows how to use it.\n", prose(head_of(umbrella))]
    for name in ["export.h", *re.findall(r"^#include <shardmesh/c_api/(\w+\.h)>$", umbrella, re.M)]:
        text = (root / FOLDER / name).read_text()
        out += [f"## {name} {{#{name.removesuffix('.h')}-h}}\n", prose(head_of(text))]
        for comment, declarations in entries(text):
            names = names_of(declarations)
            if names:
                out.append(f"### {', '.join(f'`{one}`' for one in names)} {{#{names[0]}}}\n")
            out += [f"<a id=\"{one}\"></a>" for one in names[1:]]
            out += ["\n```c\n" + "\n".join(shown(one) for one in declarations) + "\n```\n", prose(comment)]
    return "\n".join(out)


def wrapper_entry(group, anchors):
    out = [heading(3, group, anchors), prose(next((d.comment for d in group if d.comment), []))]
    for d in group:
        if d.kind == "type" and d.body and is_plain(d):
            out.append(fence(f"{d.text} {{\n" + d.body.strip("\n") + "\n};"))
        elif d.kind == "type" and d.body:
            members = ["\n".join([*(f"/// {line}" for line in m.comment), m.text]) for m in members_of(d)]
            out.append(fence(d.text + " {\n" + textwrap.indent("\n".join(members), "  ") + "\n};"))
        else:
            out.append(fence(d.text))
    return "\n".join(out)


def wrapper_page(root):
    out = ["# The C++17 wrapper: reference\n", "Made from the comments of the headers; `#include <shardmesh/c_api.hpp>` "
           "includes all of them. The names are in namespace `shardmesh::c_api`. Every function throws `error` on failure. "
           "[The C interface](../../c_api.md) shows how to use it, and [its reference](c.md) has the meaning of each option.\n"]
    anchors = Anchors()
    for file in sorted((root / FOLDER).glob("*.hpp")):
        interface = interfaces.read(file, file.name)
        out += [f"## {file.name} {{#{file.stem}-hpp}}\n", prose(interface.head)]
        groups = {}
        for d in interface.declarations:
            if "detail" not in d.namespace and d.name not in PLUMBING:
                groups.setdefault(d.group, []).append(d)
        out += [wrapper_entry(group, anchors) for group in groups.values()]
    return "\n".join(out)


def pages(root):
    """{path below reference/: text}; nothing for a project without these headers."""
    root = Path(root)
    if not (root / FOLDER).is_dir():
        return {}
    return {"c_api/c.md": c_page(root), "c_api/cpp17.md": wrapper_page(root)}
