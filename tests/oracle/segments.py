# SPDX-License-Identifier: Apache-2.0
"""`reshard --place 'KEY=SG(d,n:n:n)'` against slices in NumPy: the rows or columns that each rank's file holds, bit for
bit; and the way back. Segments that do not fit a tensor are refused with its key, and nothing is written. Needs
NumPy."""
import io
import json
import random
import struct
import zipfile

from common import Oracle, skip, seed as common_seed

try:
    import numpy as np
except ImportError as missing:
    skip(str(missing))

# (mesh, placements, shape): at most two mesh dimensions.
CASES = [((8,), ["SG(0,64:16:16)"], (96, 5)), ((4,), ["SG(0,2:0:1)"], (3, 2)), ((3,), ["SG(1,7:5)"], (4, 12)),
         ((2, 2), ["SG(0,9:4)", "SG(0,9:4)"], (13, 3)), ((2, 3), ["SG(0,9:4)", "S(0)"], (13, 3)),
         ((2, 2), ["S(0)", "SG(0,9:4)"], (13, 3)), ((2, 2), ["SG(-1,3:3)", "S(0)"], (5, 6))]
RANDOM_CASES = 20


def write_safetensors(path, tensors):
    header, data = {}, b""
    for key, values in tensors.items():
        raw = np.ascontiguousarray(values).tobytes()
        header[key] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def parsed(placement):
    """(dimension, segments or None)"""
    name, rest = placement.rstrip(")").split("(")
    dim, _, sizes = rest.partition(",")
    return int(dim), [int(size) for size in sizes.split(":")] if name == "SG" else None


def chunk(indices, parts, part):
    """torch.chunk"""
    size = -(-len(indices) // parts)
    return indices[size * part:size * (part + 1)]


def held(shape, mesh, placements, coordinate):
    """The indices of each dimension that a rank holds, in the order of its tensor."""
    made = [np.arange(size) for size in shape]
    for parts, placement, part in zip(mesh, placements, coordinate):
        dim, segments = parsed(placement)
        if segments is None:
            made[dim] = chunk(made[dim], parts, part)
            continue
        ends = np.cumsum(segments)
        made[dim] = np.concatenate([chunk(made[dim][(made[dim] >= end - size) & (made[dim] < end)], parts, part)
                                    for end, size in zip(ends, segments)])
    return made


def chunk_values(folder, one):
    """The values of a chunk: the record of a torch.save archive inside a DCP file."""
    data = (folder / one["file"]).read_bytes()[one["offset"]:one["offset"] + one["length"]]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        (record,) = [name for name in archive.namelist() if name.endswith("/data/0")]
        return np.frombuffer(archive.read(record), "<f4").reshape(one["sizes"])


def tensor_of_rank(folder, chunks, indices):
    """A rank's tensor, made of the chunks of its file. Chunks hold ranges of its indices."""
    made = np.full([len(one) for one in indices], np.nan, "<f4")
    for one in chunks:
        places = [np.searchsorted(mine, range(begin, begin + size))
                  for mine, begin, size in zip(indices, one["offsets"], one["sizes"])]
        made[np.ix_(*places)] = chunk_values(folder, one)
    return made


def check_case(oracle, case, mesh, placements, shape):
    values = np.arange(np.prod(shape), dtype="<f4").reshape(shape)
    source, folder, back = (oracle.work / f"{case}{end}" for end in (".safetensors", ".dcp", ".back"))
    write_safetensors(source, {"qkv": values, "other": values[:1]})
    sizes = ",".join(map(str, mesh))
    if oracle.succeeds(case, "reshard", source, folder, "--mesh", sizes, "--place", f"qkv={','.join(placements)}") is None:
        return
    shown = json.loads(oracle.succeeds(case, "inspect", folder, "--json") or "{}")
    chunks = shown["tensors"]["qkv"]["chunks"]
    laid = json.loads(oracle.succeeds(case, "layout", "--shape", ",".join(map(str, shape)), "--mesh", sizes, "--place",
                                      ",".join(placements), "--json") or "{}")
    for rank, coordinate in enumerate(np.ndindex(*mesh)):
        indices = held(shape, mesh, placements, coordinate)
        mine = [one for one in chunks if one["file"] == f"__{rank}_0.distcp"]
        expected = values[np.ix_(*indices)]
        found = tensor_of_rank(folder, mine, indices)
        oracle.check(found.tobytes() == expected.tobytes(), case, f"rank {rank} holds {found}, expected {expected}")
        boxes = sorted((one["offsets"], one["sizes"]) for one in mine)
        oracle.check(boxes == sorted((one["offsets"], one["sizes"]) for one in laid["ranks"][rank]["boxes"]), case,
                     f"rank {rank}: the boxes of layout and reshard differ")
        oracle.check(laid["ranks"][rank]["local_shape"] == list(expected.shape), case, f"rank {rank}: {laid['ranks'][rank]}")
    oracle.succeeds(case, "verify", folder)
    oracle.succeeds(case, "diff", source, folder)
    oracle.succeeds(case, "reshard", folder, back, "--mesh", "3", "--place", "qkv=S(0)")
    oracle.succeeds(case, "diff", source, back)


def random_case(dice):
    shape = tuple(dice.randrange(1, 14) for _ in range(dice.randrange(1, 3)))
    mesh = tuple(dice.randrange(1, 5) for _ in range(dice.randrange(1, 3)))
    placements = []
    for _ in mesh:
        dim = dice.randrange(len(shape))
        cuts = sorted(dice.randrange(shape[dim] + 1) for _ in range(dice.randrange(3)))
        sizes = [end - begin for begin, end in zip([0, *cuts], [*cuts, shape[dim]])]
        placements.append(f"SG({dim},{':'.join(map(str, sizes))})" if dice.random() < 0.7 else f"S({dim})")
    return mesh, placements, shape


def refusals(oracle):
    source = oracle.work / "refused.safetensors"
    write_safetensors(source, {"a.qkv": np.zeros((96, 2), "<f4"), "b.qkv": np.zeros((100, 2), "<f4")})
    for place, words in ((r".*qkv=SG(0,64:16:16)", ["b.qkv", "SG(0,64:16:16)", "96", "dimension 0", "100"]),
                         (r".*qkv=SG(2,64:16:16)", ["a.qkv, b.qkv", "dimension"]),
                         (r".*qkv=SG(0,64:x)", ["'x'", "SG(d,n:n:n)"]), (r".*qkv=SG(0)", ["SG takes a dimension"])):
        out = oracle.work / "refused.dcp"
        status, _, err = oracle.run("reshard", source, out, "--mesh", "2", "--place", place)
        oracle.check(status > 0 and all(word in err for word in words), f"refused {place}", f"exits {status}: {err}")
        oracle.check("a.qkv (" not in err, f"refused {place}", f"names a tensor that fits: {err}")
        oracle.check(not out.exists(), f"refused {place}", "something was written")


def main():
    oracle = Oracle(__doc__, syncs=False)
    dice = random.Random(common_seed())
    cases = CASES + [random_case(dice) for _ in range(RANDOM_CASES)]
    for number, (mesh, placements, shape) in enumerate(cases):
        check_case(oracle, f"{number}", mesh, placements, shape)
    refusals(oracle)
    oracle.finish()


if __name__ == "__main__":
    main()
