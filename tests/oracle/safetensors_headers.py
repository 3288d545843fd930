# SPDX-License-Identifier: Apache-2.0
"""Hundreds of headers of safetensors files, generated from a seed, against the `safetensors` package: both read the
same tensors, or both refuse. Deliberate refusals of headers that the package reads are recognised by a rule that
does not use our reader. Skipped without the package."""
import json
import random
import struct
import sys

from common import Oracle, skip, seed as common_seed

try:
    from safetensors import deserialize
except ImportError as problem:
    skip(f"the safetensors package cannot be imported ({problem})")

DTYPES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4,
          "F32": 4, "C64": 8, "F64": 8, "I64": 8, "U64": 8}


def entry(dtype="F32", shape="[1]", offsets="[0,4]", more=""):
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}{more}}}'


def one(value, data=4):
    return '{"w":' + value + "}", data


# (header, bytes of data): frequent errors, by hand.
BY_HAND = [
    *(one(entry(more=f',"x":{value}')) for value in (
        "1", "null", "true", '"y"', "[1,[2,{}]]", '{"a":1,"a":2}', '{"dtype":"F32"}', "1e400", "-1e400", "1e-400", "9" * 400,
        '"\\ud800"', '"\\ud83d\\ude00"', "NaN", "01", "[1,]", "{,}", '["\\q"]')),
    *(one(entry(more=',"x":' + "[" * n + "]" * n)) for n in (1, 50, 124, 125, 126, 127, 128, 129, 1000)),
    *(one(entry(more=',"x":' + '{"a":' * n + "1" + "}" * n)) for n in (1, 124, 125, 126, 127)),
    *(one(entry(shape=shape, offsets="[0,0]"), 0) for shape in (
        "[0]", "[0,0]", "[4294967296,4294967296,0]", "[0,4294967296,4294967296]", "[9223372036854775807,2,0]",
        "[9223372036854775807,3,0]", "[9223372036854775807,0,3]", "[4294967295,4294967297,0]", "[-0]", "[-1]", "[0.0]", "[1e0]",
        "[18446744073709551616,0]", "null", "{}", '"[0]"', "[null]", "[[0]]", "[true]")),
    *(one(entry(shape="[2147483648,2147483648]", offsets=offsets), 0) for offsets in ("[0,0]", "[0,18446744073709551615]")),
    *(one(entry(offsets=offsets)) for offsets in (
        "[0]", "[0,4,8]", "[4,8]", "[4,0]", "[0,4.0]", "[0,-4]", "null", "[]", '["0","4"]', "[0,[4]]", "[1,5]", "[0,5]", "[0,3]")),
    *((text, data) for text, data in (
        ("", 0), ("{}", 0), ("{}", 1), ("[]", 0), ("null", 0), ('"w"', 0), ("1", 0), ("{", 0), ("}", 0), ("{}}", 0), ("{} x", 0),
        ('{"w":null}', 0), ('{"w":1}', 0), ('{"w":{}}', 0), ('{"w":[]}', 0), ('{"__metadata__":{}}', 0),
        ('{"__metadata__":null}', 0), ('{"__metadata__":[]}', 0), ('{"__metadata__":1}', 0), ('{"__metadata__":"x"}', 0),
        ('{"__metadata__":{"a":1}}', 0), ('{"__metadata__":{"a":null}}', 0), ('{"__metadata__":{"a":["b"]}}', 0),
        ('{"__metadata__":null,"__metadata__":null}', 0), ('{"__metadata__":{},"__metadata__":null}', 0),
        ('{"__metadata__":{"a":"b"},"w":' + entry() + "}", 4), ('{"w":' + entry() + ',"__metadata__":null}', 4),
        ('{"__met\\u0061data__":{"a":"b"}}', 0), ('{"__metadata__":{"a":"\\u0000"}}', 0), ('{"\\u0000":' + entry() + "}", 4),
        ('{"":' + entry() + "}", 4), ('{"\\ud800":' + entry() + "}", 4), ('{"a\tb":' + entry() + "}", 4), ('{"a\\tb":' + entry() + "}", 4),
        ("{'w':1}", 0), ("{/**/}", 0), ('{"w":' + entry() + ",}", 4), ('{"w" ' + entry() + "}", 4),
        ('{"w":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4),
        ('{"w":{"shape":[1],"data_offsets":[0,4]}}', 4), ('{"w":{"dtype":"F32","data_offsets":[0,4]}}', 4),
        ('{"w":{"dtype":"F32","shape":[1]}}', 4), ('{"w":{"d\\u0074ype":"F3\\u0032","shape":[1],"data_offsets":[0,4]}}', 4),
        ('{"w":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}}', 4), ('{"w":{"dtype":null,"shape":[1],"data_offsets":[0,4]}}', 4),
        ('{"w":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}}', 4),
        ('{"a":' + entry() + ',"b":' + entry() + "}", 4), ('{"a":' + entry() + ',"b":' + entry(offsets="[4,8]") + "}", 8),
        ('{"a":' + entry(shape="[0]", offsets="[2,2]") + ',"b":' + entry() + "}", 4),
        ('{"a":' + entry(shape="[0]", offsets="[4,4]") + ',"b":' + entry() + "}", 4),
        ('{"a":' + entry(shape="[0]", offsets="[0,0]") + ',"b":' + entry() + "}", 4), ("\ufeff{}", 0), ("\x0c{}", 0), ("\xa0{}", 0),
        ("\0{}", 0), ("{}\0", 0), ("{}\n", 0), ('{"w":' + entry("F4", "[3]", "[0,2]") + "}", 2), ('{"w":' + entry("F4", "[4]", "[0,2]") + "}", 2),
        ('{"w":' + entry("F6_E2M3", "[4]", "[0,3]") + "}", 3), ('{"w":' + entry("F6_E2M3", "[3]", "[0,3]") + "}", 3))),
    *((" " * n + "{}" + " " * m, 0) for n in (1, 7, 55, 56, 57, 1000) for m in (0, 3)), ("\t\r\n {}", 0), ("    ", 0),
]


def generated(rng):
    """A valid header of random tensors, written with random white space and order, and changed at most once."""
    entries, at = [], 0
    for i in range(rng.randrange(4)):
        dtype = rng.choice(list(DTYPES))
        shape = [rng.choice((0, 1, 1, 2, 3, 5)) for _ in range(rng.randrange(4))]
        count = DTYPES[dtype]
        for size in shape:
            count *= size
        fields = [("dtype", dtype), ("shape", shape), ("data_offsets", [at, at + count])]
        rng.shuffle(fields)
        if rng.random() < 0.1:
            fields.append((rng.choice(("x", "strides", "")), rng.choice((None, 1, [1, {"y": []}], {"dtype": "F32"}))))
        entries.append((rng.choice((f"layer.{i}.weight", f"\u00e9{i}", f"{i}")), dict(fields)))
        at += count
    rng.shuffle(entries)
    if rng.random() < 0.3:
        entries.insert(rng.randrange(len(entries) + 1), ("__metadata__", rng.choice((None, {}, {"format": "pt"}, {"a": 1}))))
    text = json.dumps(dict(entries), ensure_ascii=rng.random() < 0.5,
                      separators=rng.choice(((",", ":"), (", ", ": "), (" ,\n", " :\t"))))
    data = at
    change = rng.randrange(12)
    if change == 0 and text:  # one byte
        i = rng.randrange(len(text))
        text = text[:i] + rng.choice('{}[]",:0159-+.eEx \n\\') + text[i + 1:]
    elif change == 1:
        i = rng.randrange(len(text) + 1)
        text = text[:i] + rng.choice(("", " ", "\n", "0", "-", "null", '"', "\\", "[", "{")) + text[i:]
    elif change == 2 and len(text) > 1:
        i = rng.randrange(len(text))
        text = text[:i] + text[i + rng.randrange(1, 4):]
    elif change == 3:
        text = rng.choice((" ", "\n\n", "\t")) * rng.randrange(1, 90) + text
    elif change == 4:
        data += rng.choice((-1, 1, 8))
    elif change == 5:
        text += rng.choice((" ", "\n", "}", "x", "\0"))
    elif change == 6:
        digits = [i for i, c in enumerate(text) if c.isdigit()]
        if digits:
            i = rng.choice(digits)
            text = text[:i] + rng.choice(("0", "7", "99999999999", "1.0", "-1", "1e1", "18446744073709551615")) + text[i + 1:]
    return text, max(data, 0)


def theirs(data):
    try:
        # The package counts F4 in half bytes; PyTorch's tensors hold two in each element.
        return sorted((name, tensor["dtype"], list(tensor["shape"])) for name, tensor in deserialize(data))
    except BaseException:  # noqa: BLE001 - a Rust panic does not derive from Exception
        return None


def pairs_of(text):
    """Finds what json.loads hides: whether an object has a key twice."""
    repeated = []

    def take(pairs):
        keys = [key for key, _ in pairs]
        repeated.extend(key for key in keys if keys.count(key) > 1)
        return dict(pairs)
    try:
        return json.loads(text, object_pairs_hook=take), repeated
    except (ValueError, RecursionError):
        return None, []


def refused_on_purpose(text):
    """The reason, in the words of docs/formats.md; None if there is none."""
    document, repeated = pairs_of(text)
    if not isinstance(document, dict):
        return None
    entries = [value for key, value in document.items() if key != "__metadata__"]
    metadata = document.get("__metadata__")
    names = set(document) | set(metadata if isinstance(metadata, dict) else {})
    if any(key in names for key in repeated):
        return "a name or a key of the metadata occurs twice"
    if any(isinstance(value, list) for value in entries):
        return "an entry is a list"
    entries = [value for value in entries if isinstance(value, dict)]
    if any(isinstance(value.get("dtype"), dict) for value in entries):
        return "a dtype is an object"
    shapes = [value["shape"] for value in entries if isinstance(value.get("shape"), list)]
    if any(len(shape) > 16 for shape in shapes):
        return "more than 16 dimensions"
    numbers = [size for shape in shapes for size in shape if isinstance(size, int)]
    if any(size >= 1 << 63 for size in numbers):
        return "a size does not fit in 63 bits"
    return None


ON_PURPOSE = [
    ('{"w":' + entry() + ',"w":' + entry() + "}", 4), ('{"__metadata__":{"a":"1","a":"2"}}', 0), ('{"w":["F32",[1],[0,4]]}', 4),
    ('{"w":{"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]}}', 4), one(entry(shape="[" + ",".join("1" * 17) + "]")),
    one(entry(shape="[9223372036854775808,0]", offsets="[0,0]"), 0),
]


def main():
    oracle = Oracle(__doc__, syncs=False)
    seed = common_seed()
    rng = random.Random(seed)
    headers = BY_HAND + ON_PURPOSE + [generated(rng) for _ in range(600)]
    file, read, refused, purpose = oracle.work / "m.safetensors", 0, 0, 0
    for number, (text, size) in enumerate(headers):
        header = text.encode()
        data = struct.pack("<Q", len(header)) + header + bytes(i % 251 for i in range(size))
        file.write_bytes(data)
        case = f"{number} (seed {seed}): {text[:200]!r} and {size} bytes"
        expected = theirs(data)
        status, out, err = oracle.run("inspect", "--json", file)
        found = None
        if status == 0:
            found = sorted((name, tensor["dtype"], tensor["shape"]) for name, tensor in json.loads(out)["tensors"].items())
            found = [(name, NAMES.get(dtype, dtype), shape) for name, dtype, shape in found]
        if expected is not None and any(dtype == "F4" for _, dtype, _ in expected):
            expected = [(name, dtype, shape[:-1] + [shape[-1] // 2] if dtype == "F4" else shape) for name, dtype, shape in expected]
        reason = refused_on_purpose(text)
        if expected is not None and reason:
            purpose += 1
            oracle.check(status == 1 and str(file) in err, case, f"is read though {reason}: {out[:200]} {err[:200]}")
            continue
        oracle.check(status == (1 if expected is None else 0), case, f"the package {'refuses' if expected is None else 'reads'} it, "
                     f"inspect exits {status}: {err.strip()[:200]}")
        oracle.check(status != 0 or found == expected, case, f"{found} is not {expected}")
        oracle.check(status == 0 or str(file) in err, case, f"names no file: {err[:200]}")
        read, refused = read + (expected is not None), refused + (expected is None)
    print(f"{read} headers are read, {refused} refused, {purpose} on purpose")
    oracle.check(read > 200 and refused > 100 and purpose >= len(ON_PURPOSE), "all", "too few of one kind")
    oracle.finish()


NAMES = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "int16": "I16",
         "uint16": "U16", "float16": "F16", "bfloat16": "BF16", "int32": "I32", "uint32": "U32", "float32": "F32", "complex64": "C64",
         "float64": "F64", "int64": "I64", "uint64": "U64", "float4_e2m1fn_x2": "F4", "float6_e2m3": "F6_E2M3"}


if __name__ == "__main__":
    sys.exit(main())
