# SPDX-License-Identifier: Apache-2.0
"""Writes sources that check the names of modules/ with the compiler, from the text of the interfaces.

    exported_names.py FOLDER FILE.cppm...

    FOLDER/every_name.cpp   names everything that any room exports: a name that two rooms define does not compile there.
                            This script itself reports types and concepts of one name in two files
    FOLDER/shown_names.cpp  names, through `import shardmesh;` alone, everything that the umbrella must show
    FOLDER/hidden_names.cpp has its own type for every other name, and for the namespaces of inner names: a name that
                            the umbrella shows is ambiguous there

The names are those that `export namespace shardmesh` blocks, and namespaces inside them, declare themselves, without
`detail`. The umbrella shows those that modules/shardmesh.cppm lists.

A program that says only `import shardmesh;` meets these names. The script fails if there are more than MOST_NAMES, or if
one is in GENERIC: such a word says nothing without its room, and is shown by `import shardmesh.ROOM;` alone.
"""
import re
import sys

MOST_NAMES = 300
GENERIC = {"apply", "bits", "find", "kind", "lent", "merge", "name", "scale", "step", "take", "visit"}
CONCEPT = re.compile(r"\bconcept\s+(\w+)\s*=")
FUNCTION = re.compile(r"\b(\w+)\s*\(")


def without_comments(text):
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
    return pattern.sub(lambda m: " " if m.group().startswith("/") else '""', text)


def exported_blocks(text):
    """(inner namespace or "", text) of each block."""
    for start in re.finditer(r"\bexport namespace shardmesh(?:::(\w+))?\s*\{", text):
        depth, at = 1, start.end()
        while depth > 0:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        if start.group(1) != "detail":
            yield start.group(1) or "", text[start.end() : at - 1]


def declarations(block):
    """The text of each declaration up to its body or its end, without text in other braces."""
    braces = parentheses = 0
    head, outside, is_body = "", "", False
    for c in block:
        if c == "{":
            if braces == 0:
                # After "=", it is a variable's value, unless the "=" belongs to an operator or a template parameter.
                is_body = parentheses == 0 and "=" not in without_arguments(outside.split("operator")[0])
                if is_body and head.strip():
                    yield head
            braces += 1
        elif c == "}":
            braces -= 1
            if braces == 0 and is_body:
                head = outside = ""
        elif braces == 0:
            parentheses += {"(": 1, ")": -1}.get(c, 0)
            head += c
            outside += c if parentheses == 0 else ""
            if c == ";" and parentheses == 0:
                yield head
                head = outside = ""


def without_arguments(text):
    """The text without everything inside < >."""
    flat, angle = "", 0
    for c in text:
        if c == "<":
            angle += 1
        elif c == ">" and angle > 0:
            angle -= 1
        elif angle == 0:
            flat += c
    return flat


def name_of(declaration):
    """(name, whether it is a type, alias, or concept), or nothing for a declaration without a new name."""
    text = " ".join(declaration.split()).strip()
    if not text or text == ";" or "operator" in text or text.startswith(("namespace", "using namespace", "static_assert", "}")):
        return None
    using = re.match(r"using shardmesh::(\w+)", text)
    if using:
        return using.group(1), False
    concept = CONCEPT.search(text)
    if concept:
        return concept.group(1), True
    plain = without_arguments(text)
    plain = re.sub(r"^(template\s*)?(requires\b.*?(?=\b(?:class|struct|result|void|bool|auto|inline|constexpr)\b))?", "", plain.strip()).strip()
    alias = re.match(r"using (\w+) =", plain)
    if alias:
        return alias.group(1), True
    kind = re.match(r"(?:class|struct|enum class|enum|union) (?:\[\[[^\]]*\]\] ?)?(\w+)", plain)
    if kind:
        return (kind.group(1), True) if text.startswith(("template", "class", "struct", "enum", "union")) else None
    plain = re.sub(r"\brequires\s*\(.*?\)\s*(?=\w)", "", plain)
    function = FUNCTION.search(plain)
    if function and "=" not in plain[: function.start()]:
        is_member = plain[: function.start()].endswith("::")  # the body of a member, after its class
        return None if is_member else (function.group(1), False)
    variable = re.search(r"(\w+)(?:\[\w*\])?$", plain.split("=")[0].rstrip("; "))
    return (variable.group(1), False) if variable else None


def names_of(text):
    """(inner namespace, name, whether it is defined here as a type, alias, or concept) of every export of a file."""
    for inner, block in exported_blocks(text):
        for declaration in declarations(block):
            found = name_of(declaration)
            if not found or found[0] in ("", "specialization"):
                continue
            name, is_type = found
            is_ahead = declaration.strip().endswith(";") and not re.search(r"\b(using|concept)\b", declaration)
            yield inner, name, is_type and not is_ahead


MODULE = re.compile(r"^export module shardmesh(?:\.(\w+))?(?::\w+)?;", re.M)


def spelled(inner, name):
    return f"{inner}::{name}" if inner else name


def unit(what, imports, body):
    lines = [f"// Written by tests/static/exported_names.py: {what}."]
    return "\n".join(lines + [f"import {i};" for i in imports] + ["", *body, ""])


def using_all(names):
    """Refers to names in the namespace that declares them, so that inner names do not collide with outer ones."""
    for inner in sorted({inner for inner, _ in names}):
        yield f"namespace named{'::' + inner if inner else ''} {{"
        yield from (f"using shardmesh::{spelled(inner, name)};" for of, name in sorted(names) if of == inner)
        yield "}"


def main(folder, files):
    texts, types = {}, {}
    for file in files:
        with open(file, encoding="utf-8") as source:
            text = without_comments(source.read())
        if MODULE.search(text):  # not an internal partition
            texts[file] = text
    rooms = {MODULE.search(text).group(1) or "" for text in texts.values()}
    every, shown = set(), set()
    for file, text in texts.items():
        is_umbrella = not MODULE.search(text).group(1)
        for inner, name, is_type in names_of(text):
            (shown if is_umbrella else every).add((inner, name))
            if is_type and types.setdefault((inner, name), file) != file:
                sys.exit(f"{file}: exports {spelled(inner, name)}, which {types[inner, name]} exports too")
    if len(shown) < 200 or len(every) < 600:
        sys.exit(f"only {len(shown)} of {len(every)} names were found: the interfaces are written in another way")
    if any(inner for inner, _ in shown):
        sys.exit("the umbrella shows a namespace of inner names")
    generic = sorted(GENERIC & {name for _, name in shown})
    if len(shown) > MOST_NAMES or generic:
        sys.exit(f"the umbrella shows {len(shown)} names, of at most {MOST_NAMES}; generic ones: {', '.join(generic) or 'none'}")
    hidden = {name for inner, name in every - shown if not inner} | {inner for inner, _ in every if inner}
    own_types = [f"struct {name};" for name in sorted(hidden)]
    uses = [f"using {name}_is_hidden = {name};" for name in sorted(hidden)]
    units = {
        "every_name": unit("every exported name", sorted(f"shardmesh.{room}" for room in rooms if room), using_all(every)),
        "shown_names": unit("what the umbrella shows", ["shardmesh"], using_all(shown)),
        "hidden_names": unit("what the umbrella does not show", ["shardmesh"],
                             ["namespace own {", *own_types, "}", "namespace use {", "using namespace shardmesh;",
                              "using namespace own;", *uses, "}"]),
    }
    for name, text in units.items():
        with open(f"{folder}/{name}.cpp", "w", encoding="utf-8") as out:
            out.write(text)


if __name__ == "__main__":
    main(sys.argv[1], sorted(sys.argv[2:]))
