# SPDX-License-Identifier: Apache-2.0
"""Writes a translation unit that names, through `import shardmesh;`, everything that the rooms export.

    exported_names.py OUTPUT FILE.cppm...

A name that two rooms define does not compile there; types and concepts of one name in two files are an error here,
which says where. Names are those that `export namespace shardmesh` blocks declare themselves, without `detail`.
"""
import re
import sys

CONCEPT = re.compile(r"\bconcept\s+(\w+)\s*=")
FUNCTION = re.compile(r"\b(\w+)\s*\(")


def without_comments(text):
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
    return pattern.sub(lambda m: " " if m.group().startswith("/") else '""', text)


def exported_blocks(text):
    for start in re.finditer(r"\bexport namespace shardmesh\s*\{", text):
        depth, at = 1, start.end()
        while depth > 0:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        yield text[start.end() : at - 1]


def declarations(block):
    """The text of each declaration up to its body or its end; what stands in braces elsewhere is left out."""
    braces = parentheses = 0
    head, outside, is_body = "", "", False
    for c in block:
        if c == "{":
            if braces == 0:
                # Behind "=" it is a variable's value, unless that is an operator's or a template parameter's.
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
    """Without what stands in < >."""
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
    """(name, is a type, alias or concept), or nothing for what has no name of its own."""
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
        return function.group(1), False
    variable = re.search(r"(\w+)(?:\[\w*\])?$", plain.split("=")[0].rstrip("; "))
    return (variable.group(1), False) if variable else None


def main(output, files):
    names, types = set(), {}
    for file in files:
        with open(file, encoding="utf-8") as source:
            text = without_comments(source.read())
        for block in exported_blocks(text):
            for declaration in declarations(block):
                found = name_of(declaration)
                if not found:
                    continue
                name, is_type = found
                names.add(name)
                if is_type and declaration.strip().endswith(";") and not re.search(r"\b(using|concept)\b", declaration):
                    continue  # declared ahead
                if is_type and types.setdefault(name, file) != file:
                    sys.exit(f"{file}: exports {name}, which {types[name]} exports too")
    names -= {"specialization", ""}
    if len(names) < 500:
        sys.exit(f"only {len(names)} exported names were found: the interfaces are written in another way")
    lines = ["// Written by tests/static/exported_names.py: every exported name, through the umbrella.", "import shardmesh;", "",
             "namespace every_name {"]
    lines += [f"using shardmesh::{name};" for name in sorted(names)]
    lines += ["}  // namespace every_name", ""]
    with open(output, "w", encoding="utf-8") as unit:
        unit.write("\n".join(lines))


main(sys.argv[1], sorted(sys.argv[2:]))
