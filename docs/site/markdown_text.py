# SPDX-License-Identifier: Apache-2.0
"""Comments of the interfaces as markdown."""
import re

TAG = re.compile(r"\\(param|returns|errors)\b ?(\w+)?")
ITEM = re.compile(r" *(-|\d+\.) (.*)")
LABEL = re.compile(r"^(Cost|Source|Precondition|Preconditions|Complexity): ?")


def escaped(text):
    """Prose of a comment as markdown: what stands between backticks as it is."""
    parts = re.split(r"(`[^`]*`)", text)
    for i in range(0, len(parts), 2):
        part = re.sub(r"[\\*_\[\]>#]", lambda m: "\\" + m.group(), parts[i]).replace("<", "&lt;")
        parts[i] = re.sub(r"\berrc::((?:\w|\\_)+)", lambda m: f"`errc::{m.group(1)}`".replace("\\", ""), part)
    return "".join(parts)


def cell(text):
    """The same in a table."""
    return escaped(text).replace("|", "\\|")


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
        elif ITEM.match(line):
            first = not out or not ITEM.match(out[-1].lstrip("\n"))
            marker, item = ITEM.match(line).groups()
            out.append(("\n" if first else "") + f"{marker} {escaped(item)}")
        else:
            out.append(escaped(line.strip()))
    if code:
        out.append("```\n")
    return "\n".join(out).strip() + "\n" if any(line.strip() for line in out) else ""


def summary(lines):
    """The first sentence, for tables."""
    first = re.split(r"\n(?: {4}|\n|\\|- )", "\n".join(lines))[0]
    text = " ".join(first.split()) if not first.startswith("\\") else ""
    end = re.search(r"(?<!\.)[.:;](?= (?![a-z.0-9])|$)", text.split(" \\")[0])
    return cell(text.split(" \\")[0][:end.start() if end else None].strip().rstrip(":"))


def fence(text):
    return f"```cpp\n{text}\n```\n"


def slug(name):
    operators = {"=": "eq", "<": "lt", ">": "gt", "*": "star", "-": "minus", "+": "plus", "[": "at", "(": "call", "!": "not", "&": "and", "|": "or", " ": "-", "/": "by"}
    return "".join(operators.get(c, c if re.match(r"[\w-]", c) else "") for c in name)


class Anchors:
    """An anchor of its own for each heading of a page."""

    def __init__(self):
        self.taken, self.last = {}, ""

    def of(self, name):
        number = self.taken[name] = self.taken.get(name, 0) + 1
        self.last = slug(name) + (f"-{number}" if number > 1 else "")
        return self.last
