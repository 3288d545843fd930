# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of the guides: the commit of a save, the data path of a load, a strided shard, a flat parameter,
and a fused q, k, and v.

    diagrams.py FOLDER            writes NAME-light.svg and NAME-dark.svg of each into FOLDER
    diagrams.py FOLDER --check    exits with 1 if the files differ from what the script draws now
"""
import sys

from drawing import RANKS, arrow, box, files_of, rect, text, write_or_check


def commit():
    lanes = ((230, "rank 0", RANKS[0]), (450, "rank 1", RANKS[1]))
    out = [text(x, 34, name, "head") for x, name, _ in lanes] + [text(710, 34, "on the disk", "head")]
    y = 56
    steps = (("plan", "all_gather", ("plan the save",), ("plan the save",), None),
             ("write", "", ("write, fsync",), ("write, fsync",), (".run.shardmesh-tmp-…", "file of each rank")),
             ("agree", "all_gather", ("“on the disk”",), ("“on the disk”",), None),
             ("describe", "", ("metadata, fsync",), None, (".run.shardmesh-tmp-…", "files and .metadata")),
             ("commit", "", ("rename",), None, ("run", "the new checkpoint")),
             ("report", "all_gather", ("return",), ("return",), None))
    for name, round_of, first, second, files in steps:
        out.append(text(20, y + 38, name, "edge", "start"))
        for (x, _, colour), lines in zip(lanes, (first, second)):
            if lines:
                out += box(x - 92, y + 6, 184, 50, lines, "cell", colour)
        if round_of and first and second:
            out += [arrow(326, y + 31, 355, y + 31), arrow(354, y + 31, 325, y + 31)]
        if files:
            out += [arrow(546 if second else 326, y + 31, 576, y + 31)]
            out += box(582, y, 256, 62, files, "cell" if name == "commit" else "plain", RANKS[2] if name == "commit" else "")
        y += 76
    return ("The commit of a save", "Ranks plan, write their files under a temporary name, and agree that the files are on "
            "the disk. Rank 0 writes the metadata and renames the folder. Until then the destination is unchanged.",
            y + 44, out + [text(426, y + 20, "↔ all_gather. Until the rename, the old checkpoint stays as it is.", "small edge")])


def load():
    heads = ((110, "stored chunks"), (400, "who reads"), (715, "ranks' tensors"))
    out = [text(x, 34, head, "head") for x, head in heads]
    rows = ((("rows that one", "rank wants"), ("that rank,", "into place"), "no message"),
            (("equal boxes that", "several want"), ("one of them,", "into place"), "sent from its tensor"),
            (("columns,", "overlaps"), ("ranks in turn, pieces", "of at most 8 MiB"), "sent from staging"))
    y = 60
    for i, (stored, reader, sent) in enumerate(rows):
        out += box(15, y, 200, 84, stored)
        out += [arrow(222, y + 42, 268, y + 42)]
        out += box(278, y, 250, 84, reader, "cell", RANKS[i])
        for rank in range(3):
            wanted = rank == 1 if i == 0 else True
            direct = rank == 1 if i < 2 else False
            out.append(rect(620 + 72 * rank, y + 8, 60, 42, "cell" if wanted else "frame", RANKS[i] if wanted else ""))
            out.append(text(650 + 72 * rank, y + 37, str(rank), "small on" if wanted else "small edge"))
            if direct:
                out.append(rect(626 + 72 * rank, y + 12, 48, 5, "", "#222"))
        out += [arrow(536, y + 29, 608, y + 29), text(722, y + 76, sent, "small edge")]
        y += 108
    out += [rect(170, y - 2, 40, 28, "cell", RANKS[1]), rect(175, y + 2, 30, 5, "", "#222"), text(222, y + 20, "read straight into this rank's tensor", "small", "start")]
    return ("The data path of a load", "Rows that one rank wants are read into place. Of equal boxes, one rank reads and "
            "sends. Everything else is read in pieces, in turn, and sent from staging memory.", y + 40, out)


def strided():
    out, top, height, width = [], 100, 240, 200
    heads = (("1. tp cuts the rows", "S(0) on tp = 2"), ("2. dp cuts each part", "SS(0,2) on dp = 2"),
             ("3. the ranks' boxes", "rank = 2·dp + tp"))
    cells = ((("tp 0", RANKS[0]), ("tp 1", RANKS[1])),
             (("dp 0", RANKS[2]), ("dp 1", RANKS[3]), ("dp 0", RANKS[2]), ("dp 1", RANKS[3])),
             (("rank 0", RANKS[0]), ("rank 2", RANKS[2]), ("rank 1", RANKS[1]), ("rank 3", RANKS[3])))
    for i, ((head, below), rows) in enumerate(zip(heads, cells)):
        x = 46 + 286 * i
        out += [text(x + width / 2, 34, head, "head"), text(x + width / 2, 64, below, "code small")]
        step = height / len(rows)
        for j, (label, colour) in enumerate(rows):
            first = 8 * j // len(rows)
            out += box(x, top + j * step, width, step, (label,), "cell", colour, "")
            out.append(text(x - 8, top + j * step + 20, str(first), "small edge", "end"))
        if i < 2:
            out.append(arrow(x + width + 10, top + height / 2, x + width + 50, top + height / 2))
    out += [text(426, 384, "dp 0 holds rows 0:2 and 4:6. They are two boxes: a strided shard."),
            text(426, 414, "Without the stride, S(0),S(0), ranks 1 and 2 would trade places.", "small edge")]
    return ("FSDP over tensor parallelism: the boxes of a strided shard", "8 rows on a mesh of dp = 2 and tp = 2. Tensor "
            "parallelism cuts the rows first, then FSDP cuts each part, so a coordinate of dp has two boxes.", 432, out)


SHAPE, BIAS, PER_RANK = (4, 6), 5, 10  # a weight, a bias, and one element of padding on three ranks


def flat():
    unit, top = 27, 104
    count = SHAPE[0] * SHAPE[1]
    out = [text(426, 34, "one flat tensor, cut into equal ranges", "head")]
    for i in range(3 * PER_RANK):
        out.append(rect(21 + unit * i, top, unit, 44, "cell" if i < count + BIAS else "dim", RANKS[i // PER_RANK] if i < count + BIAS else ""))
    for first, size, name in ((0, count, "weight: 24 elements"), (count, BIAS, "bias: 5")):
        out.append(f'<path class="line" fill="none" d="M{21 + unit * first + 3} {top - 8}v-10h{unit * size - 6}v10"/>')
        out.append(text(21 + unit * (first + size / 2), top - 26, name, "small"))
    for rank in range(3):
        out.append(text(21 + unit * PER_RANK * (rank + 0.5), top + 74, f"rank {rank}", "small"))
    out.append(text(21 + unit * 29.5, top + 74, "pad", "small edge"))
    out.append(text(230, 240, "the boxes in the weight", "head"))
    side, left, above = 46, 92, 258
    for i in range(count):
        row, column = divmod(i, SHAPE[1])
        out.append(rect(left + side * column, above + side * row, side, side, "cell", RANKS[i // PER_RANK],
                        f"element {i} on rank {i // PER_RANK}"))
    lines = ("rank 0: row 0, and the", "beginning of row 1", "rank 1: the end of row 1,", "row 2, the beginning of 3", "rank 2: the end of row 3,", "and the whole bias")
    for i, line in enumerate(lines):
        out.append(text(430 + 34, above + 22 + 30 * i + 8 * (i // 2), line, "small", "start"))
        if i % 2 == 0:
            out.append(rect(434, above + 6 + 30 * i + 8 * (i // 2), 20, 20, "cell", RANKS[i // 2]))
    return ("A flat parameter of FSDP", "A weight of 4 by 6 and a bias of 5 elements lie in one flat tensor of 30 elements, "
            "which three ranks cut into ranges of ten. A range of the weight is up to three boxes.", above + 4 * side + 20, out)


GROUPS, QUERIES, ROWS = 2, 2, 2  # of the model of examples/mapping.toml: g, r, and d


def qkv():
    block, left, right, width, top = 40, 110, 526, 190, 62
    out = [text(left + width / 2, 34, "three tensors", "head"), text(right + width / 2, 34, "qkv, group by group", "head")]
    places = {}  # (part, head) -> the middle of its left block
    y = top
    for part, heads, colour in (("q", GROUPS * QUERIES, RANKS[0]), ("k", GROUPS, RANKS[1]), ("v", GROUPS, RANKS[2])):
        out.append(text(left - 62, y + heads * block / 2 + 8, part, "code head"))
        for head in range(heads):
            out += box(left, y, width, block, (f"{part}, head {head}",), "cell", colour)
            out.append(text(left - 8, y + 20, str(head * ROWS), "small edge", "end"))
            places[part, head] = y + block / 2
            y += block
        y += 18
    y, row = top, 0
    for group in range(GROUPS):
        heads = [("q", group * QUERIES + i) for i in range(QUERIES)] + [("k", group), ("v", group)]
        begin = y
        for part, head in heads:
            out.append(f'<path class="line" d="M{left + width + 6} {places[part, head]:g}L{right - 44} {y + block / 2:g}"/>')
            out += box(right, y, width, block, (f"{part}, head {head}",), "cell", RANKS["qkv".index(part)])
            out.append(text(right - 8, y + 20, str(row), "small edge", "end"))
            row += ROWS
            y += block
        out.append(f'<path class="line" fill="none" d="M{right + width + 8} {begin + 3}h10v{y - begin - 6}h-10"/>')
        out.append(text(right + width + 26, (begin + y) / 2 + 8, f"group {group}", "small", "start"))
        y += 18
    below = top + 8 * block + 36 + 48
    out += [text(426, below, "q: (g r d) h, k: (g d) h, v: (g d) h", "code"),
            text(426, below + 32, "-> qkv: (g [q:r | k | v] d) h", "code"),
            text(426, below + 70, f"g = {GROUPS} groups, r = {QUERIES} queries of a group, d = {ROWS} rows of a head", "small edge")]
    return ("A fused q, k, and v", "Eight rows of q, four of k, and four of v become 16 rows of qkv. Each group has its two "
            "query heads, then its key head, then its value head.", below + 92, out)


PICTURES = {"commit": commit, "load": load, "strided-shard": strided, "flat-parameter": flat, "qkv": qkv}

if __name__ == "__main__":
    sys.exit(write_or_check(files_of({name: draw() for name, draw in PICTURES.items()}), sys.argv[1], "--check" in sys.argv[2:],
                            f"docs/site/diagrams.py {sys.argv[1]}"))
