# SPDX-License-Identifier: Apache-2.0
"""gdb prints shardmesh's values as the library formats them: `source shardmesh_printers.py`, in gdb or in ~/.gdbinit.

Only memory is read and no function of the program is called, so this also works on core dumps. Types are found by their
names without the module (`box@shardmesh.layout` is `box`). The standard library's containers are read in libstdc++'s
layout. Values that gdb does not know (a library without debug information) or cannot read are reported in angle
brackets.
"""
import contextlib
import re

import gdb
import gdb.printing

MOST_DIMENSIONS = 16  # max_rank
MOST_SHOWN = 200  # in one line; gdb's `set print elements` limits what it lists as children


# --- the standard library ---------------------------------------------------------------------------------------------
def plain(kind):
    return kind.strip_typedefs().unqualified()


def at_begin(value, kind):
    """Returns the memory at the value's address as another type."""
    if value.address is None:
        raise gdb.error("not in memory")
    return value.address.reinterpret_cast(kind.pointer()).dereference()


def items(vector):
    first, last = vector["_M_impl"]["_M_start"], vector["_M_impl"]["_M_finish"]
    count = int(last - first)
    if count < 0:
        raise gdb.error("not yet made")
    return (first[i] for i in range(count))


def length(vector):
    return int(vector["_M_impl"]["_M_finish"] - vector["_M_impl"]["_M_start"])


def text(string):
    size = int(string["_M_string_length"])
    shown = string["_M_dataplus"]["_M_p"].string("utf-8", "replace", min(size, 4096)) if size else ""
    return shown + ("..." if size > 4096 else "")


def optional(value):
    payload = value["_M_payload"]
    return payload["_M_payload"]["_M_value"] if payload["_M_engaged"] else None


def alternative(variant):
    """Returns the index and the value that a variant holds."""
    index = int(variant["_M_index"])
    return index, at_begin(variant["_M_u"], plain(variant.type).template_argument(index))


def owned(unique):
    """Returns the target of a unique_ptr, whose only member is the pointer."""
    target = plain(unique.type).template_argument(0)
    pointer = at_begin(unique, target.pointer())
    if not pointer:
        raise gdb.error("moved from")
    return pointer.dereference()


# --- one line each ----------------------------------------------------------------------------------------------------
def enumerator(value):
    """Returns the last part of an enumerator's name; a number if it has none."""
    return str(value.cast(plain(value.type))).rpartition("::")[2]


def dtype(value):
    return {"boolean": "bool"}.get(enumerator(value), enumerator(value))


def numbers(extents):
    rank = int(extents["rank_"])
    if rank > MOST_DIMENSIONS:
        raise gdb.error("not yet made")
    return [int(extents["values_"][d]) for d in range(rank)]


def listed(values):
    """Returns "[a, b]"; long lists are cut."""
    shown = []
    for value in values:
        if len(shown) == MOST_SHOWN:
            shown.append("...")
            break
        shown.append(str(value))
    return f"[{', '.join(shown)}]"


def counted(number, what):
    return f"{number} {what if number == 1 else {'leaf': 'leaves'}.get(what, what + 's')}"


def extents(value):
    return listed(numbers(value))


def span(offsets, sizes):
    return "[" + ", ".join(f"{o}:{o + s}" for o, s in zip(numbers(offsets), numbers(sizes))) + ")"


def box(value):
    return span(value["offsets"], value["sizes"])


def device(value):
    index = int(value["index"])
    return enumerator(value["type"]) + (f":{index}" if index >= 0 else "")


def remote_device(value):
    rank, worker, where = optional(value["rank"]), text(value["worker"]), device(value["where"])
    return f"rank:{int(rank)}/{where}" if rank is not None else f"{worker}/{where}" if worker else where


def error(value):
    """Formats an error like to_string(error), with the code before it."""
    if enumerator(value["code"]) == "ok":
        return "no error"
    line = enumerator(value["code"]) + ": "
    line += "".join(text(value[part]) + ": " for part in ("file", "key") if text(value[part]))
    line += text(value["message"])
    boxes, ranks = [box(b) for b in items(value["boxes"])], [str(int(r)) for r in items(value["ranks"])]
    line += " in " + " and ".join(boxes) if boxes else ""
    line += f" (rank{'' if len(ranks) == 1 else 's'} {', '.join(ranks)})" if ranks else ""
    expected, found, hint = (text(value[part]) for part in ("expected", "found", "hint"))
    line += f": expected {expected}" if expected else ""
    line += f"{',' if expected else ':'} found {found}" if found else ""
    return line + (f"; {hint}" if hint else "")


def placement(value):
    kind, dim = enumerator(value["kind"]), int(value["dim"])
    sizes = value["segment_sizes"]
    stored = min(int(value["segment_count"]), sizes.type.range()[1] + 1)
    segments = ":".join(str(int(sizes[i])) for i in range(stored))
    return {"replicate": "R", "shard": f"S({dim})", "strided_shard": f"SS({dim},{int(value['split_factor'])})",
            "partial": f"P({enumerator(value['reduction'])})",
            "shard_segments": f"SG({dim},{segments})"}.get(kind, kind)


def split_rule(value):
    ends = [int(end) for end in items(value["ends_"])]
    parts = [end - begin for begin, end in zip([0, *ends], ends)]
    return enumerator(value["policy_"]) + (" " + listed(parts) if parts else "")


def device_mesh(value):
    sizes, names = numbers(value["sizes_"]), value["names_"]["_M_ptr"]
    names = [text(name) + "=" for name in items(names.dereference())] if names else [""] * len(sizes)
    mesh = ",".join(f"{name}{size}" for name, size in zip(names, sizes)) or "one rank"
    numbering = value["numbering_"]["_M_ptr"]
    return mesh + (f" of ranks {listed(int(r) for r in items(numbering.dereference()['ranks']))}" if numbering else "")


def description_of_layout(value):
    placements = ", ".join(placement(p) for p in items(value["placements"]))
    rules = {split_rule(rule) for rule in items(value["rules"])} - {"torch_chunk"}
    return (f"{extents(value['shape'])} on {device_mesh(value['mesh'])}" + (f" as {placements}" if placements else "")
            + (f", cut by {' and '.join(sorted(rules))}" if rules else ""))


def layout(value):
    return description_of_layout(value["description_"]["_M_ptr"].dereference())


def fragment(value):
    term = int(value["term"])
    return (f"{box(value['where'])} of owner {int(value['owner'])}, slot {int(value['slot'])} at "
            f"{extents(value['local_offsets'])}" + (f", term {term}" if term else ""))


def tensor_view(value):
    return (f"{dtype(value['type'])} {extents(value['sizes'])}, strides {extents(value['strides'])}, "
            f"on {device(value['where'])} at {int(value['data']):#x}")


def shard_metadata(value):
    where = optional(value["placement"])
    return span(value["offsets"], value["sizes"]) + (" on no device" if where is None else " on " + remote_device(where))


def rank_group(value):
    numbering = value["numbering_"]["_M_ptr"]
    return listed(items(numbering.dereference()["globals"]) if numbering else range(int(value["size_"])))


def key(value):
    """Returns an index, an integer key, or a name. Up to 15 bytes are in the key itself; longer names are shared."""
    size, is_a_number = int(value["size_"]), int(value["is_a_number"])
    if size == int(value["is_an_index"]):
        return int(at_begin(value["bytes_"], gdb.lookup_type("long")))
    if size == int(value["is_shared"]):
        shared = gdb.lookup_type(plain(value.type).name + "::shared_text")
        held = at_begin(value["bytes_"], shared.pointer())
        begin, size = (held + 1).reinterpret_cast(gdb.lookup_type("char").pointer()), int(held["size"])
        return begin.string("utf-8", "replace", min(size, 4096))
    begin = value["bytes_"].address.reinterpret_cast(gdb.lookup_type("char").pointer())
    if size > is_a_number:
        digits = begin.string("utf-8", "replace", size - is_a_number)
        return int(digits) if re.fullmatch("-?[0-9]+", digits) else digits  # a value under construction
    return begin.string("utf-8", "replace", size)


def quoted(name):
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def path_key(value):
    one = key(value)
    return str(one) if isinstance(one, int) else quoted(one)


def spelled(keys):
    """Returns the exact text of a path: model.layers[0]["a.b"]."""
    line = ""
    for one in keys:
        if isinstance(one, int):
            line += f"[{one}]"
        elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", one):
            line += ("." if line else "") + one
        else:
            line += f"[{quoted(one)}]"
    return line


def path(value):
    return spelled(key(k) for k in items(value["keys_"])) or "the root"


# --- values with parts ------------------------------------------------------------------------------------------------
class Line:
    """A value that is one line."""

    def __init__(self, line):
        self.line = line

    def to_string(self):
        return self.line


class Parts(Line):
    """A line with named parts, or (`hint`) those of an array or a map. Parts are made as gdb asks for them; they end
    at one that cannot be read, as in a value under construction."""

    def __init__(self, line, parts, hint=None):
        super().__init__(line)
        self.parts, self.hint = parts, hint

    def children(self):
        with contextlib.suppress(gdb.error):
            yield from self.parts

    def display_hint(self):
        return self.hint


def numbered(values):
    return ((str(i), value) for i, value in enumerate(values))


NATIVE = {"boolean": "bool", "uint8": "unsigned char", "int8": "signed char", "int16": "short", "int32": "int",
          "int64": "long", "uint16": "unsigned short", "uint32": "unsigned int", "uint64": "unsigned long",
          "float32": "float", "float64": "double"}


def host_tensor(value):
    """Shows the elements, if C++ has a type for them."""
    line, native = f"{dtype(value['type_'])} {extents(value['sizes_'])}", NATIVE.get(enumerator(value["type_"]))
    size = int(value["size_bytes_"])
    if not native or not size:
        return Line(line)
    element = gdb.lookup_type(native)
    first = at_begin(value["data_"], element.pointer())
    return Parts(line, numbered(element_value(first[i]) for i in range(size // element.sizeof)), "array")


def element_value(value):
    """Shows a char as a number, not as a letter."""
    return int(value) if value.type.sizeof == 1 and plain(value.type).name != "bool" else value


def result(value):
    if plain(value.type).template_argument(0).code == gdb.TYPE_CODE_VOID:
        problem = optional(value["error_"])
        return Line("success" if problem is None else "failed: " + error(problem))
    index, held = alternative(value["state_"])
    return Line("failed: " + error(held)) if index == 1 else Parts("a value", [("value", held)])


def distribution(value):
    model = value["model_"]["_M_ptr"].dereference()
    line = f"{extents(model['shape'])} of {int(model['owners'])} {enumerator(model['space'])}"
    line += f", {enumerator(model['reduction'])} of {int(model['terms'])} terms" if int(model["terms"]) > 1 else ""
    kind = kind_of(model)
    if kind is None:
        return Line(line)
    model, class_name = at_begin(model, kind), kind.name.rpartition("::")[2]
    if class_name == "grid":
        return Line(f"{line}: {description_of_layout(model['parts_']['_M_ptr'].dereference())}")
    if class_name == "list":
        return Parts(f"{line}: {counted(length(model['owner']), 'fragment')}", numbered(fragments(model)), "array")
    if class_name == "one_fragment":
        return Parts(f"{line}: 1 fragment", numbered([only_fragment(model["held"])]), "array")
    return Line(line)


def kind_of(model):
    """Returns the class of an object, from the symbol of its virtual table; None if gdb does not know the class.
    gdb's own dynamic types use names that differ from those of modules, with a warning for each."""
    table = int(at_begin(model, gdb.lookup_type("long")))
    symbol = re.match(r"vtable for (\S.*?)(@[\w.]+)? \+ ", gdb.execute(f"info symbol {table}", to_string=True))
    try:
        return gdb.lookup_type(symbol.group(1)) if symbol else None
    except gdb.error:
        return None


def only_fragment(held):
    offsets, sizes = numbers(held["where"]["offsets"]), numbers(held["where"]["sizes"])
    where = ", ".join(f"{begin}:{begin + size}" for begin, size in zip(offsets, sizes))
    return f"[{where}) of owner {int(held['owner'])}, slot {int(held['slot'])}" + (f", term {int(held['term'])}" if held["term"] else "")


def fragments(model):
    rank = len(numbers(model["shape"]))
    arrays = [model[name]["_M_impl"]["_M_start"] for name in ("offsets", "sizes", "owner", "slot", "term")]
    for i in range(length(model["owner"])):
        offsets, sizes, owner, slot, term = arrays
        where = ", ".join(f"{int(offsets[d])}:{int(offsets[d] + sizes[d])}" for d in range(i * rank, (i + 1) * rank))
        yield (f"[{where}) of owner {int(owner[i])}, slot {int(slot[i])}" + (f", term {int(term[i])}" if term[i] else ""))


def whole(metadata):
    return f"{extents(metadata['size'])} {dtype(metadata['properties']['type'])} in {counted(length(metadata['shards']), 'shard')}"


def sharded_tensor_metadata(value):
    return Parts(whole(value), numbered(items(value["shards"])), "array")


def shard(value):
    index, held = alternative(value["held_"])
    return Parts(shard_metadata(value["metadata_"]), [("nested", owned(held["held_"])) if index else ("tensor", held)])


def sharded_tensor(value):
    line = f"{whole(value['metadata_'])}, rank {int(value['rank_'])} of {rank_group(value['group_'])}"
    return Parts(line, numbered(items(value["local_shards_"])), "array")


def dtensor(value):
    line, local = f"{layout(value['layout_'])}, rank {int(value['rank_'])}", optional(value["local_"])
    return Line(line + ", which holds nothing") if local is None else Parts(line, [("local", local)])


def state_value(value):
    """Shows a leaf as the value that it holds."""
    index, held = alternative(value["held_"])
    if index in (4, 6):
        return Line(quoted(text(held)) if index == 4 else "an opaque object")
    if index in (0, 5):
        return Line("none" if index == 0 else counted(length(held), "byte"))
    if index < 4:
        return Line(str(held))
    held = owned(held["held_"]) if index > 7 else held
    return printer_of(held) or Parts("", [("tensor", held)])


def leaves(spec):
    """Yields the path of every leaf, in order. Nodes are in post-order: the last child stands before its container,
    and the child before it stands a whole subtree earlier."""
    nodes, keys = spec["nodes_"]["_M_impl"]["_M_start"], spec["keys_"]["_M_impl"]["_M_start"]
    count = length(spec["nodes_"])
    open_nodes = [(count - 1, ())] if count else []
    while open_nodes:
        at, above = open_nodes.pop()
        if enumerator(nodes[at]["kind"]) == "leaf":
            yield above
        child = at - 1
        for _ in range(int(nodes[at]["arity"])):
            open_nodes.append((child, (*above, key(keys[child]))))
            child -= int(nodes[child]["nodes"])


def tree_spec(value):
    count = length(value["nodes_"])
    total = int(value["nodes_"]["_M_impl"]["_M_start"][count - 1]["leaves"]) if count else 0
    return Parts(f"{counted(total, 'leaf')} of {counted(count, 'node')}", numbered(spelled(p) for p in leaves(value)), "array")


def state_dict(value):
    def pairs():
        for where, leaf in zip(leaves(value["tree_"]["spec_"]), items(value["leaves_"])):
            yield "key", spelled(where)
            yield "value", leaf
    return Parts(counted(length(value["leaves_"]), "leaf"), pairs(), "map")


ONE_LINE = (extents, box, device, remote_device, error, placement, split_rule, device_mesh, layout, fragment,
            tensor_view, shard_metadata, rank_group, path_key, path)
WITH_PARTS = (host_tensor, result, distribution, sharded_tensor_metadata, shard, sharded_tensor, dtensor, state_value,
              tree_spec, state_dict)
PRINTERS = {function.__name__: function for function in (*ONE_LINE, *WITH_PARTS)}
PRINTERS["const_tensor_view"] = tensor_view


def name_of(kind):
    """Returns `result` for `shardmesh::result@shardmesh.core<int>`, and None for types that are not ours. Clang
    describes a class that is exported alone, without its namespace, under its bare name."""
    name = re.sub(r"@[\w.:]+", "", plain(kind).name or "").partition("<")[0]
    return name.removeprefix("shardmesh::") if name.startswith("shardmesh::") or name == "path_key" else None


def printer_of(value):
    name = name_of(value.type)
    function = PRINTERS.get(name)
    if function is None or plain(value.type).code != gdb.TYPE_CODE_STRUCT:
        return None
    try:
        made = function(value)
        return Line(made) if isinstance(made, str) else made
    except (gdb.error, RuntimeError, UnicodeError) as problem:
        is_unknown = re.search("incomplete type|No type named", str(problem))
        return Line(f"<{name}: {'the library has no debug information' if is_unknown else problem}>")


class Printers(gdb.printing.PrettyPrinter):
    """The printers; `info pretty-printer` lists them, and `disable pretty-printer global shardmesh` turns them off."""

    def __init__(self):
        super().__init__("shardmesh")

    def __call__(self, value):
        return printer_of(value)


gdb.printing.register_pretty_printer(None, Printers(), replace=True)
