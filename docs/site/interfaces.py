# SPDX-License-Identifier: Apache-2.0
"""What the interfaces of modules/ export, as they are written: declarations without bodies, with their comments.

Why not doxygen: it reads modules' syntax, but does not know what is exported, drops a comment that stands for several
declarations and those behind fields, and cuts sentences at "0 .. n". The interfaces are formatted by clang-format, so
that a walk over braces and comments finds everything; tests/static/site_test.py holds it to `exported_names.py`, whose
names the compiler checks.
"""
import re
from dataclasses import dataclass, field


@dataclass
class Declaration:
    kind: str  # type, enum, concept, alias, function, variable, using, namespace, member
    name: str
    text: str  # without a body, as it is written
    comment: list[str]  # the lines above it, without slashes
    namespace: str = ""
    file: str = ""
    exported: bool = False
    body: str = ""  # of a type or enum: what stands in its braces
    words: tuple = ()  # kept by reference.signature
    group: int = 0  # declarations in a row, without a blank line or another comment between them, have one number


@dataclass
class Interface:
    path: str
    room: str  # "" of the umbrella
    head: list[str]  # what the file says of itself
    declarations: list[Declaration] = field(default_factory=list)


def dedent(text):
    """Lines that follow the first keep what they are indented beyond it."""
    lines = text.strip("\n").split("\n")
    first = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join([lines[0].lstrip()] + [line[min(first, len(line) - len(line.lstrip())):] for line in lines[1:]])


TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((.*?)\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)


def closing(text, at):
    """Behind the brace that closes the one at `at`."""
    depth = 0
    while at < len(text):
        token = TOKEN.match(text, at)
        if token:
            at = token.end()
            continue
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
        if depth == 0:
            return at
    raise ValueError("a brace is not closed")


def flat(text):
    """A declaration's head without comments, template heads, attributes, and what stands in parentheses and <>."""
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"\[\[.*?\]\]", "", text, flags=re.S)
    out, angle, parens, at = "", 0, 0, 0
    for at, c in enumerate(text):
        if c == "(":
            out += "(" if angle == 0 and parens == 0 else ""
            parens += 1
        elif c == ")":
            parens -= 1
            out += ")" if angle == 0 and parens == 0 else ""
        elif parens == 0 and c == "<" and not out.endswith("operator") and text[at:at + 3] != "<=>":
            angle += 1
        elif parens == 0 and c == ">" and angle and text[at - 1] != "-":
            angle -= 1
        elif parens == 0 and angle == 0:
            out += c
    return " ".join(out.split())


TYPE = re.compile(r"^(?:export )?(?:template )?(?:requires\(\) |requires [\w:|& !]+? )?(?:template )?(class|struct|enum class|enum|union)\s+([\w:]+)")


def classify(head):
    """(kind, name) of a declaration's text up to its body."""
    plain = flat(head)
    bare = re.sub(r"^export ", "", plain)
    space = re.match(r"(?:inline )?namespace ?([\w:]*)", bare)
    if space:
        return "namespace", space.group(1)
    concept = re.search(r"\bconcept (\w+) ?=", bare)
    if concept:
        return "concept", concept.group(1)
    if bare.startswith(("static_assert", "friend class", "friend struct", "extern template")):
        return "other", ""
    if bare.startswith("using namespace"):
        return "other", ""
    using = re.match(r"using ([\w:]*::)(\w+) ?;?$", bare)
    if using:
        return "using", using.group(2)
    alias = re.match(r"(?:template )?(?:requires[^=]*? )?using (\w+) ?=", bare)
    if alias:
        return "alias", alias.group(1)
    if re.match(r"enum ?:", bare):
        return "other", ""  # numbers of C
    kind = TYPE.match(bare)
    if kind and not re.search(r"\w ?\(", bare[kind.end():].split(":")[0]) and "=" not in bare[kind.end():]:
        return ("enum" if kind.group(1).startswith("enum") else "type"), kind.group(2).split("::")[-1]
    operator = re.search(r"\boperator\s*([^\s\w(]+|\(\)|\"\"\s*\w+|bool|[\w:]+)\s*\(", bare)
    if operator:
        return "function", "operator" + (" " if operator.group(1)[0].isalpha() else "") + operator.group(1)
    plain = re.sub(r"\brequires ?\(\)(?: ?(?:&&|\|\|) ?\(\))* ?", "", bare)
    function = re.search(r"(::)?(~?\w+) ?\(", plain)
    if function and "=" not in plain[:function.start()]:  # with "::" a member's body, behind its class
        return ("other", "") if function.group(1) else ("function", function.group(2))
    variable = re.search(r"(\w+)(?:\[\w*\])? ?$", re.split(r"[={;]", plain)[0])
    return ("variable", variable.group(1)) if variable else ("other", "")  # a pointer to a function has no name of its own


def without_constructor(head):
    """A constructor's head without what initialises the members."""
    depth = 0
    for at, c in enumerate(head):
        depth += {"(": 1, ")": -1}.get(c, 0)
        if c == ":" and depth == 0 and head[at - 1] in " \n" and ")" in head[:at] and head[at + 1:at + 2] in " \n":
            return head[:at]
    return head


class Walk:
    """The declarations of a stretch of text, one after the other."""

    def __init__(self, text):
        self.text, self.at, self.comment, self.group, self.fresh = text, 0, [], 0, True
        self.found = []

    def all(self):
        while self.at < len(self.text):
            self.step()
        return self.found

    def step(self):
        blank = re.compile(r"[ \t]*\n").match(self.text, self.at)
        if blank:
            self.at, self.comment, self.fresh = blank.end(), [], True
            return
        note = re.compile(r"[ \t]*///?( ?[^\n]*)\n?").match(self.text, self.at)
        if note:
            if not self.comment:
                self.fresh = True
            line = note.group(1)
            self.comment.append(line[1:] if line.startswith(" ") else line)
            self.at = note.end()
            return
        skipped = re.compile(r"[ \t]*(#[^\n]*|public:|private:|protected:|module;|)[ \t]*(?=\n|$)").match(self.text, self.at)
        if skipped and skipped.group(1):
            self.found.append(Declaration("access", skipped.group(1).rstrip(":"), "", []))
            self.at = skipped.end() + 1
            return
        self.declaration()

    def declaration(self):
        text, start, at, parens = self.text, self.at, self.at, 0
        body, body_end = None, None
        while at < len(text):
            token = TOKEN.match(text, at)
            if token:
                at = token.end()
                continue
            c = text[at]
            parens += {"(": 1, ")": -1}.get(c, 0)
            if c == ";" and parens == 0:
                at += 1
                break
            if c == "{":
                head = text[start:at]
                kind, _ = classify(head)
                end = closing(text, at)
                is_expression = re.search(r"\brequires\s*(\([^{}]*\)\s*)?$", head) and (kind != "function" or re.search(r"requires requires", head))
                initialises = kind == "function" and without_constructor(head) != head and re.search(r"[\w>]$", head)
                if parens > 0 or is_expression or initialises or kind in ("variable", "concept", "alias", "other"):
                    at = end
                    continue
                body, body_end = at, end
                at = end
                if kind in ("type", "enum"):
                    at = text.index(";", end) + 1
                break
            at += 1
        trailing = re.compile(r"[ \t]*(//[^\n]*)").match(text, at)
        self.add(start, at, body, body_end, trailing)
        self.at = trailing.end() if trailing else at
        newline = re.compile(r"[ \t]*\n").match(text, self.at)
        self.at = newline.end() if newline else self.at

    def add(self, start, end, body, body_end, trailing):
        text = self.text
        whole = text[start:end] if body is None else text[start:body]
        kind, name = classify(whole)
        if kind == "function":
            whole = without_constructor(whole)
        if body is not None:
            whole = whole.rstrip() + ("" if kind in ("type", "enum", "namespace") else ";")
        if trailing:
            whole += "  " + trailing.group(1)
        whole = re.sub(r"[ \t]*// NOLINT[^\n]*", "", whole)  # a note to clang-tidy, not to users
        if self.fresh:
            self.group += 1
        inside = text[body + 1:body_end - 1] if body is not None and kind in ("type", "enum", "namespace") else ""
        self.found.append(Declaration(kind, name, dedent(whole), self.comment, body=inside, group=self.group,
                                      exported=whole.lstrip().startswith("export ")))
        self.comment, self.fresh = [], False


def walk(text, namespace, exported, path):
    """All declarations of a file's text, with those of its namespaces. `group`: whether it is the last one's."""
    last = None
    for one in Walk(text).all():
        if one.kind == "namespace":
            inner = "::".join(part for part in (namespace, one.name) if part)
            yield from walk(one.body, inner, exported or one.exported, path)
            last = None
        elif one.kind not in ("access", "other"):
            one.namespace, one.exported, one.file = namespace, exported or one.exported, path
            one.text = one.text.removeprefix("export ")
            one.group, last = one.group == last, one.group
            yield one


def read(path, name):
    """The interface file at `path`, called `name` in what is said of it; None of a file that is none."""
    text = path.read_text()
    module = re.search(r"^(export )?module shardmesh(?:\.(\w+))?(?::\w+)?;\n", text, re.M)
    if path.suffix == ".cppm" and not (module and module.group(1)):
        return None
    head = [line.removeprefix("//").strip() for line in re.match(r"(?://[^\n]*\n)*", text).group().splitlines()[1:]]
    interface = Interface(name, (module.group(2) or "") if module else "", head)
    start = module.end() if module else re.search(r"^namespace ", text, re.M).start() if re.search(r"^namespace ", text, re.M) else len(text)
    body = re.sub(r"^(export )?import [^\n]*\n", "", text[start:], flags=re.M)
    interface.declarations = list(walk(body, "", False, name))
    number = 0
    for one in interface.declarations:
        one.group = number = number + (not one.group)
    return interface
