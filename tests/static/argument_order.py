# SPDX-License-Identifier: Apache-2.0
"""No call may read a variable in one argument that another argument's call sets: C and C++ leave the order open.

`check(load(&error), error)` passes the old `error` on GCC. So does `f(std::move(x), x.size())` if f takes by value.
Checks every C and C++ file and the code in docs. Usage: argument_order.py ROOT [FILE ...]"""
import pathlib
import re
import sys

FOLDERS = ("examples", "tests", "include", "docs", "c_api", "tools", "bindings", "python/native", "modules")
ENDINGS = (".c", ".h", ".cpp", ".hpp", ".cppm", ".cu", ".md")
NAME = r"[A-Za-z_]\w*"
NOT_CALLS = {"if", "for", "while", "switch", "return", "sizeof", "catch", "REQUIRE", "CHECK", "SECTION", "requires", "SHARDMESH_TRY"}


def code_of(path: pathlib.Path) -> str:
    """The text with strings and comments blanked; for a page, only its C and C++ blocks. Line numbers are kept."""
    text = path.read_text(errors="replace")
    if path.suffix == ".md":
        kept, inside = [], False
        for line in text.split("\n"):
            if line.lstrip().startswith("```"):
                inside = not inside and line.strip("` ") in ("c", "cpp", "c++")
                line = ""
            kept.append(line if inside else "")
        text = "\n".join(kept)
    blank = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
    return blank.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def calls(code: str):
    """Name, line, and arguments of every call. A lambda among the arguments runs later, or never: its body is no
    argument."""
    for begin in re.finditer(rf"({NAME})\s*\(", code):
        depth, at, start, arguments = 0, begin.end(), begin.end(), []
        while at < len(code):
            c = code[at]
            if c in "([{":
                depth += 1
            elif c in ")]}":
                if depth == 0:
                    break
                depth -= 1
            elif c == "," and depth == 0:
                arguments.append(code[start:at])
                start = at + 1
            elif c == ";" and depth == 0:
                break
            at += 1
        if at < len(code) and code[at] == ")" and begin.group(1) not in NOT_CALLS:
            yield begin.group(1), code.count("\n", 0, begin.start()) + 1, [*arguments, code[start:at]]


def reads(argument: str, name: str) -> bool:
    """Whether the argument reads the variable's value: not its address, a member of that name, or an unevaluated
    use."""
    argument = re.sub(rf"\b(?:sizeof|decltype)\s*(?:\([^()]*\)|{NAME})", " ", argument)
    return re.search(rf"(?<![\w.&>:]){name}\b(?!\s*[({{:])", re.sub(r"&\s+", "&", argument)) is not None


def set_by(argument: str):
    """Variables whose address, or a move from which, is an argument of a call inside this argument."""
    if "[" in argument and "{" in argument:  # a lambda, which runs later if at all
        return
    for found in re.finditer(rf"&\s*({NAME})\s*(?=[,)])|std::move\(({NAME})\)", argument):
        before = argument[:found.start()]
        if before.count("(") > before.count(")") and not re.search(r"[\w)\]]\s*$", before):
            yield found.group(1) or found.group(2)


def problems(path: pathlib.Path):
    for called, line, arguments in calls(code_of(path)):
        for i, argument in enumerate(arguments):
            for name in set_by(argument):
                for k, other in enumerate(arguments):
                    if k != i and not ("[" in other and "{" in other) and reads(other, name):
                        yield f"{path}:{line}: {called}(...) sets {name} in one argument and reads it in another"


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    files = [pathlib.Path(name) for name in sys.argv[2:]] or [
        path for folder in FOLDERS for path in sorted((root / folder).rglob("*")) if path.suffix in ENDINGS]
    # Checks that the sample's errors are found.
    sample = pathlib.Path(sys.argv[0]).with_name("argument_order_sample.c")
    if len(list(problems(sample))) != 2:
        print(f"{sample}: both calls of the sample should be found")
        return 1
    found = sorted({line for path in files for line in problems(path) if path != sample and path.name != sample.name})
    print("\n".join(found) or f"{len(files)} files: no call reads in one argument what another sets")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
