# SPDX-License-Identifier: Apache-2.0
"""Declarations as markdown: a definition with its members, an entry of functions that share a comment."""
import re

import interfaces
from markdown_text import cell, fence, prose
from reference import is_refusal


def names_in(group):
    return list(dict.fromkeys(d.name for d in group))


def heading(level, group, anchors):
    names = names_in(group)
    return f"{'#' * level} {', '.join(f'`{name}`' for name in names)} {{#{anchors.of(names[0])}}}\n"


def comment_of(group):
    return next((d.comment for d in group if d.comment), [])


def group_page(level, group, anchors):
    return "\n".join([heading(level, group, anchors), fence("\n".join(d.text for d in group)), prose(comment_of(group))])


def is_class(d):
    found = interfaces.TYPE.match(interfaces.flat(d.text))
    return bool(found) and found.group(1) == "class"


def members_of(d):
    """The public members of a class: declarations with their kind; those of access are left out."""
    public, found = not is_class(d), []
    for one in interfaces.Walk(d.body).all():
        if one.kind == "access":
            public = one.name == "public" if one.name in ("public", "private", "protected") else public
        elif public and one.kind != "other" and not is_refusal(one.text):
            found.append(one)
    return found


def is_plain(d):
    """A struct of fields: its definition says it all."""
    equality = ("friend", "bool operator", "constexpr bool operator")
    return not is_class(d) and all(m.kind in ("variable", "alias") or m.text.startswith(equality) for m in members_of(d))


def enumerators(d):
    """(name, what stands behind it) of each."""
    body = d.body if "\n" in d.body.strip() or "//" in d.body else re.sub(r", *", ",\n", d.body.strip())
    return re.findall(r"^ *(\w+)(?: = [^,/\n]*)?,? *(?://+ ?([^\n]*))?$", body, re.M)


def specialised(d):
    """`name<arguments>` of a specialisation, else nothing."""
    found = re.search(rf"(?:class|struct)\s+(?:\[\[.*?\]\]\s*)?({d.name}<.*>)", " ".join(d.text.split()))
    return found.group(1) if found else ""


def definitions(declarations):
    """The definition (or, of what has none, a declaration) and the specialisations behind it."""
    first = [d for d in declarations if not specialised(d)]
    first.sort(key=lambda d: (not d.body, not d.comment))
    return first[:1] + [d for d in declarations if specialised(d)]


def inner_page(d, anchors):
    """A type that users do not name: its definition, with all its members in one block."""
    whole = d.kind == "enum" or is_plain(d)
    out = [heading(2, [d], anchors), prose(d.comment),
           fence(d.text + (" {\n" + d.body.strip("\n") + "\n};" if d.body and whole else ""))]
    if d.kind == "type" and d.body and not whole:
        out.append(fence("\n".join("\n".join(["// " + line for line in m.comment] + [m.text]) for m in members_of(d))))
    return "\n".join(out)


def definition_page(d, anchors, said):
    """The definition; of each member's entry, `said(members, anchor)`."""
    out = []
    if d.kind == "enum":
        values = enumerators(d)
        if any(text for _, text in values):
            rows = [f'| <a id="{d.name}-{name}"></a>`{name}` | {cell(text)} |' for name, text in values]
            out += [fence(d.text + ";"), "| value | |\n|---|---|", *rows, ""]
        else:
            out.append(fence(d.text + " {" + d.body + "};"))
    elif d.kind == "type" and d.body and is_plain(d):
        lines = [line for line in d.body.strip("\n").splitlines()]
        out.append(fence(d.text + " {\n" + "\n".join(lines) + "\n};"))
    elif d.kind == "type" and d.body:
        out.append(fence(d.text + ";"))
        mine = members_of(d)
        grouped = {}
        for m in mine:
            grouped.setdefault(m.group, []).append(m)
        for group in grouped.values():
            for m in group:
                if m.kind in ("type", "enum") and m.body:
                    m.text += " {" + re.sub(r"^  ", "", m.body.rstrip(), flags=re.M) + "\n};"
            out.append(group_page(3, group, anchors))
            said(group, anchors.last)
    else:
        out.append(fence(d.text + (";" if not d.text.rstrip().endswith((";",)) and "//" not in d.text else "")))
    return "\n".join(out)
