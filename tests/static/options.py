# SPDX-License-Identifier: Apache-2.0
"""Compares docs/options.md, the table of options, with the sources of C++, C, Python, and the command line.

    options.py ROOT

- Every option in the table exists, and every option in the sources is in exactly one row of the table. C++: the members
  of STRUCTS. C: the members of C_STRUCTS. Python: the parameters with defaults of FUNCTIONS, and the fields of
  Selection. Command line: the flags of the commands that read a checkpoint, and those that SHARING has in common with
  them.
- A row whose spellings differ gives the reason, and no other row does. Dashes count as underscores.
- Structs with the same option agree about it: see SAME. Their members have one order, type, and default.
- Nothing new is forgotten: every option struct of ROOMS is in STRUCTS or OTHER_STRUCTS, and every one of the C headers
  in C_STRUCTS or OTHER_C_STRUCTS. Every public function of the Python package, and every public method with such
  parameters, is in FUNCTIONS or OTHER_FUNCTIONS.

A cell of C++ lists `struct::member`, and one of C `struct.member`. The other cells list `keyword` of `function`,
`function`; with ";" in between.
"""
import ast
import re
import sys
from itertools import zip_longest
from pathlib import Path

from exported_names import declarations, without_arguments, without_comments

PAGE = "docs/options.md"
SCRIPT = "tests/static/options.py"
COLUMNS = ["option", "C++", "C", "Python", "command line", "why they differ"]
STRUCTS = """open_options load_options read_options read_state_options load_sharded_options placement_options
             map_options dequantize_options mapped_options selection_options save_options commit_hooks output_options
             convert_options reshard_options verify_options diff_options rank_save_options rank_load_options call_options
             checkpoint_run_options run_save_options prune_options step_check_options replicas_options
             keep_options store_cache_options delta_options""".split()
ROOMS = "checkpoint checkpoint_core collective_checkpoint delta mapping replicas run state_checkpoint".split()
# Of readers' own checks, of the search for names in pickles, and of a pool that saves share.
OTHER_STRUCTS = {"check_options", "global_options", "staging_pool_options"}
# A struct, and others that have its members: all of them, or those with the same names.
SAME = {"save_options": ("all", "convert_options reshard_options rank_save_options"),
        "load_options": ("common", "rank_load_options read_state_options load_sharded_options"),
        "read_state_options": ("all", "load_sharded_options"), "placement_options": ("all", "load_sharded_options")}
# Members of a base that these structs lack on purpose: conversions write whole checkpoints.
LACKING = {"convert_options": {"previous"}, "reshard_options": {"previous"}}
# Of calls between ranks in general, not of these verbs.
OTHER_MEMBERS = {"call_options::stream", "call_options::tag", "call_options::name"}
C_STRUCTS = ["shardmesh_" + name for name in """open_options load_options start_load_options map_options save_options
             convert_options reshard_options selection verify_options diff_options call""".split()]
# Of plans, which read no checkpoint.
OTHER_C_STRUCTS = {"shardmesh_plan_options"}
# The struct's size, and padding, which must be 0.
NO_OPTIONS_OF_C = {"struct_size", "reserved"}
FUNCTIONS = """open inspect load map_tensor open_delta save_delta Checkpoint.load Checkpoint.load_into Checkpoint.load_object
               Checkpoint.object_bytes
               Checkpoint.map_tensor Checkpoint.start_load Loading.wait ObjectEntry.load TensorEntry.load
               TensorEntry.map save Selection convert reshard verify diff dcp.load dcp.save dcp.async_save
               dcp.LoadPlanner dcp.StorageReader dcp.StorageWriter
               Run Run.latest Run.prune Run.resume Run.save Run.start_save Run.verify""".split()
# Commands with options of their own. The table has those that they share with the commands that read a checkpoint.
SHARING = ["plan", "map", "delta"]
# Of tensors in memory, of the machine, of shipped mappings, and of PyTorch's interface of readers and writers.
OTHER_FUNCTIONS = {"devices", "flatten_sharded_tensors", "full_state_dict", "mapping_text", "mappings", "redistribute",
                   "Shards.sharded_tensor", "dcp.LoadPlanner.set_up_planner", "dcp.StorageReader.reset",
                   "dcp.StorageWriter.reset"}
FLAG = r'"(--[a-z][a-z-]*)'


def members(root, say):
    """`struct::member` of every option struct of the interfaces."""
    found = {}  # {struct: {member: its declaration without what is in braces and angle brackets}}
    for file in sorted((root / "modules").rglob("*.cppm")):
        room = file.relative_to(root / "modules").parts[0]
        text = without_comments(file.read_text())
        for struct in re.finditer(r"^struct (\w+) \{(.*?)^\};", text, re.M | re.S):
            if struct.group(1) not in STRUCTS:
                if room in ROOMS and struct.group(1).endswith("_options") and struct.group(1) not in OTHER_STRUCTS:
                    say(f"modules/{room}: {struct.group(1)} is neither in STRUCTS nor in OTHER_STRUCTS of {SCRIPT}")
            else:
                names = found.setdefault(struct.group(1), {})
                for declaration in declarations(struct.group(2)):
                    flat = without_arguments(declaration)
                    head = flat.split("=")[0]
                    name = re.search(r"(\w+)\s*$", head.rstrip("; \n"))
                    if name and "(" not in head:  # no function
                        names[name.group(1)] = " ".join(flat.split()).rstrip("=; ")
    for struct in STRUCTS:
        if not found.get(struct):
            sys.exit(f"modules: no members of the struct {struct} were found")
    compare_members(found, say)
    return {f"{struct}::{name}": name for struct, names in found.items() for name in names}


def compare_members(found, say):
    """Compares the structs of SAME."""
    for base, (which, others) in SAME.items():
        for other in others.split():
            wanted = [text for name, text in found[base].items()
                      if name in found[other] or which == "all" and name not in LACKING.get(other, ())]
            for here, there in zip_longest(wanted, (text for name, text in found[other].items() if name in found[base])):
                if here != there:
                    say(f"modules: {base} and {other} differ: '{here or 'nothing'}' and '{there or 'nothing'}'")
                    break


def c_members(root, say):
    """`struct.member` of every option struct of the C headers."""
    found = {}
    for file in sorted((root / "include/shardmesh/c_api").glob("*.h")):
        text = without_comments(file.read_text())
        for struct, body in re.findall(r"^typedef struct (\w+) \{(.*?)^\} \1;", text, re.M | re.S):
            if struct not in C_STRUCTS:
                if struct.endswith("_options") and struct not in OTHER_C_STRUCTS:
                    say(f"{file.name}: {struct} is neither in C_STRUCTS nor in OTHER_C_STRUCTS of {SCRIPT}")
                continue
            last = ""
            for declaration in body.split(";")[:-1]:
                name = re.search(r"\(\*(\w+)\)|(\w+)\s*$", declaration)
                name = name.group(1) or name.group(2)
                # An array is a pointer and the number of its elements: one option.
                is_length = name.endswith("_count") and "*" in last
                if name not in NO_OPTIONS_OF_C and not is_length:
                    found[f"{struct}.{name}"] = name
                last = declaration
    for struct in C_STRUCTS:
        if not any(name.startswith(struct + ".") for name in found):
            sys.exit(f"include/shardmesh/c_api: no members of the struct {struct} were found")
    return found


def public(package):
    """The definition of every name that a Python package imports from its own files."""
    trees, found = {}, {}
    for imported in ast.walk(ast.parse((package / "__init__.py").read_text())):
        file = package / f"{getattr(imported, 'module', None)}.py"
        if isinstance(imported, ast.ImportFrom) and imported.level == 1 and file.is_file():
            tree = trees.setdefault(file, ast.parse(file.read_text()))
            defined = {one.name: one for one in tree.body if isinstance(one, (ast.FunctionDef, ast.ClassDef))}
            found |= {name.name: defined[name.name] for name in imported.names if name.name in defined}
    return found


def method(of, name):
    return next((one for one in of.body if isinstance(one, ast.FunctionDef) and one.name == name), None)


def optional(defined):
    """The parameters with defaults of a function or a class's constructor."""
    if isinstance(defined, ast.ClassDef):
        constructor = method(defined, "__init__")
        if constructor is None:  # a dataclass
            return [one.target.id for one in defined.body if isinstance(one, ast.AnnAssign) and one.value]
        defined = constructor
    plain = [*defined.args.posonlyargs, *defined.args.args]
    keywords = zip(defined.args.kwonlyargs, defined.args.kw_defaults)
    optional_plain = plain[len(plain) - len(defined.args.defaults):]
    return [one.arg for one in optional_plain] + [one.arg for one, value in keywords if value]


def keywords(root, say):
    """`function(keyword)` of every verb of the Python package."""
    package = root / "python/shardmesh"
    names = public(package) | {f"dcp.{name}": one for name, one in public(package / "dcp").items()}
    for name, defined in names.items():
        functions = {name: defined} if isinstance(defined, ast.FunctionDef) else {
            f"{name}.{one.name}": one for one in defined.body
            if isinstance(one, ast.FunctionDef) and not one.name.startswith("_") and optional(one)}
        for function in sorted(functions.keys() - {*FUNCTIONS, *OTHER_FUNCTIONS}):
            say(f"python: {function} is neither in FUNCTIONS nor in OTHER_FUNCTIONS of {SCRIPT}")
    found = {}
    for function in FUNCTIONS:
        outer, _, inner = function.partition(".")
        defined = names.get(function) or (method(names[outer], inner) if outer in names else None)
        if defined is None:
            sys.exit(f"python: there is no {function}")
        found |= {f"{function}({keyword})": keyword for keyword in optional(defined)}
    return found


def flags(root, say):
    """`command --flag` of every command that reads a checkpoint, and of SHARING the flags that functions add."""
    folder = root / "tools/shardmesh"
    bodies = {}
    for file in sorted(folder.glob("*.cpp")):
        bodies |= dict(re.findall(r"^void add_(\w+)\([^{]*\) \{\n(.*?)^\}", file.read_text(), re.M | re.S))
    common = (folder / "main.cpp").read_text()
    of_all = re.findall(r"\bapp\.add_\w+(?:<[\w:]+>)?\(\s*" + FLAG, common)
    loop = re.search(r"for \(const char\* const reads : \{([^}]*)\}\) \{\n(.*?)^  \}", common, re.M | re.S)
    if not of_all or not loop:
        sys.exit("tools/shardmesh/main.cpp: the options of all commands were not found")

    def helpers(text):
        return [bodies[name] for name in re.findall(r"\badd_(\w+)\(\*command\b", text) if name in bodies]

    def added(texts):
        return [flag for text in texts for flag in re.findall(r"\badd_\w+(?:<[\w:]+>)?\(\s*" + FLAG, text)]

    found = {f"{command} {flag}": flag.removeprefix("--").replace("-", "_")
             for command in SHARING for flag in added(helpers(bodies[command]))}
    for command in re.findall(r'"([\w-]+)"', loop.group(1)):
        if command not in bodies:
            sys.exit(f"tools/shardmesh: there is no add_{command}")
        texts = [bodies[command], loop.group(2), *helpers(bodies[command] + loop.group(2))]
        own = added(texts)
        for flag in re.findall(FLAG, bodies[command]):
            if flag not in own:
                say(f"tools/shardmesh: {command} names {flag}, which it does not add in a way that this script knows")
        found |= {f"{command} {flag}": flag.removeprefix("--").replace("-", "_") for flag in [*own, *of_all]}
    return found


def words(cell):
    """The texts between commas, without backquotes. All text counts, so that a slip of the pen is not passed over."""
    return [word.strip(" `") for word in cell.split(",") if cell]


def listed(cell, spelled):
    """The options that a cell of Python or the command line lists: `keyword` of `function`, `function`; ..."""
    for part in cell.split(";") if cell else []:
        option, _, users = part.partition(" of ")
        for user in words(users) or [""]:
            yield spelled(option.strip(" `"), user)


def rows(root):
    """(line number, C++ options, C options, Python options, flags, reason) of each row of the table."""
    text = (root / PAGE).read_text().splitlines()
    for number, line in enumerate(text, 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        is_heading = bool(cells) and cells[0].startswith("**") and not any(cells[1:])
        if not cells or cells == COLUMNS or set(line) <= set("|- ") or is_heading:
            continue
        if len(cells) != len(COLUMNS):
            sys.exit(f"{PAGE}:{number}: the row has {len(cells)} cells, not {len(COLUMNS)}")
        yield (number, words(cells[1]), words(cells[2]), list(listed(cells[3], lambda name, of: f"{of}({name})")),
               list(listed(cells[4], lambda name, of: f"{of} {name}")), cells[5])


def main(root):
    wrong = []
    known = {"C++": members(root, wrong.append), "C": c_members(root, wrong.append),
             "Python": keywords(root, wrong.append), "command line": flags(root, wrong.append)}
    for name in OTHER_MEMBERS:
        if known["C++"].pop(name, None) is None:
            wrong.append(f"modules: there is no {name}, which {SCRIPT} leaves out")
    seen, count = {}, 0
    for number, *cells, reason in rows(root):
        count += 1
        spellings = set()
        for (side, options), cell in zip(known.items(), cells):
            for option in cell:
                if option not in options:
                    wrong.append(f"{PAGE}:{number}: there is no option {option} ({side})")
                elif option in seen:
                    wrong.append(f"{PAGE}:{number}: {option} is in line {seen[option]}, too")
                else:
                    seen[option] = number
                    spellings.add(options[option])
        if not any(cells):
            wrong.append(f"{PAGE}:{number}: the row lists no option")
        if len(spellings) > 1 and not reason:
            wrong.append(f"{PAGE}:{number}: no reason why the spellings differ: {', '.join(sorted(spellings))}")
        if len(spellings) == 1 and reason:
            wrong.append(f"{PAGE}:{number}: a reason, but there is only one spelling: {spellings.pop()}")
    for side, options in known.items():
        wrong += [f"{PAGE}: no row lists {option} ({side})" for option in options if option not in seen]
    numbers = ", ".join(f"{len(options)} options ({side})" for side, options in known.items())
    print("\n".join(wrong) or f"{count} rows list {numbers}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
