# SPDX-License-Identifier: Apache-2.0
"""The benchmarks validate_*: whether a set of shards is complete and without overlaps. They run beside PyTorch's own
functions, on the same boxes in one run; a million shards run beside std::sort of their offsets. Nothing here imports
PyTorch (torch_side.py does)."""
import array
import random
import statistics


def rows(count, shape):
    step = shape[0] // count
    return shape, [((i * step, 0), (step, shape[1])) for i in range(count)]


def grid(down, across, shape):
    height, width = shape[0] // down, shape[1] // across
    return shape, [((r * height, c * width), (height, width)) for r in range(down) for c in range(across)]


def guillotine(count, side=1 << 20):
    """Returns boxes that are cut in two at random places, by rows or columns, in turn."""
    draw = random.Random(count)
    boxes, at = [((0, 0), (side, side))], 0
    while len(boxes) < count:
        (offsets, sizes), dim = boxes[at], draw.randrange(2)
        if sizes[dim] > 1:
            cut = draw.randrange(1, sizes[dim])
            low, high, start = list(sizes), list(sizes), list(offsets)
            low[dim], high[dim], start[dim] = cut, sizes[dim] - cut, offsets[dim] + cut
            boxes[at] = (offsets, tuple(low))
            boxes.append((tuple(start), tuple(high)))
        at = (at + 1) % len(boxes)
    draw.shuffle(boxes)
    return (side, side), boxes


LAYOUTS = {
    "validate_rows": ("Shard(0) of [4096, 14336] over 4096", lambda: rows(4096, (4096, 14336))),
    "validate_rows_100k": ("100,000 rows", lambda: rows(100_000, (100_000, 64))),
    "validate_grid": ("a 128 x 128 grid of [16384, 16384]", lambda: grid(128, 128, (16384, 16384))),
    "validate_2x8192": ("a 2 x 8192 grid of [16384, 16384]", lambda: grid(2, 8192, (16384, 16384))),
    "validate_8192x2": ("an 8192 x 2 grid of [16384, 16384]", lambda: grid(8192, 2, (16384, 16384))),
    "validate_cuts_1k": ("1,000 guillotine cuts", lambda: guillotine(1000)),
    "validate_cuts_4k": ("4,000 guillotine cuts", lambda: guillotine(4000)),
    "validate_cuts_16k": ("16,000 guillotine cuts", lambda: guillotine(16000)),
}
MILLIONS = {
    "validate_1m_rows": ("1,000,000 rows", lambda: rows(1_000_000, (1_000_000, 64))),
    "validate_1m_grid": ("a 1000 x 1000 grid", lambda: grid(1000, 1000, (16000, 16000))),
    "validate_1m_cuts": ("1,000,000 guillotine cuts, in random order", lambda: guillotine(1_000_000)),
}


def sample(bench, name, made):
    path = bench.work / f"{name}.shards"
    if not path.exists():
        shape, boxes = made()
        numbers = array.array("q", [len(shape), len(boxes), *shape])
        for offsets, sizes in boxes:
            numbers.extend(offsets)
            numbers.extend(sizes)
        path.write_bytes(numbers.tobytes())
    return path


def ours(bench, case, path, *rest):
    program = bench.build / "bin" / "shardmesh_validate_bench"
    return lambda repeat: bench.json_of([program, case, path, "--repeat", repeat, *rest])


def compare(bench, title, sides):
    """Times the sides in two alternating blocks. `sides`: a name, a function that runs the side, and the name of its
    base."""
    if bench.only_counts:
        for _, side, base in sides:
            if base:
                side(1)
        return
    times = {name: [] for name, _, _ in sides}
    for _ in range(2):
        for name, side, _ in sides:
            times[name] += side((bench.runs + 1) // 2)["microseconds"]
    print(f"\n{title}")
    for name, _, base in sides:
        taken = times[name]
        median = statistics.median(taken)
        if base:
            bench.note_ratio(f"{name} / {base}", taken, times[base])
        ratio = f"   {statistics.median(times[base]) / median:8.2f} times as fast as {base}" if base else ""
        print(f"  {name:<46} {median / 1000:11.3f} ms  ({min(taken) / 1000:.3f}..{max(taken) / 1000:.3f}, {len(taken)} runs){ratio}",
              flush=True)


def beside_torch(name):
    title, made = LAYOUTS[name]

    def case(bench):
        path = sample(bench, name, made)
        overlap = "validate_non_overlapping_shards_metadata"
        plan = "DCP's _validate_global_plan"
        compare(bench, title, [
            ("check_overlaps", ours(bench, "overlaps", path), overlap),
            ("check_boxes", ours(bench, "cover", path), plan),
            (overlap, lambda repeat: bench.torch("validate_shards", path, "--repeat", repeat), None),
            (plan, lambda repeat: bench.torch("validate_plan", path, "--repeat", repeat), None)])
    return case


def beside_sort(name):
    title, made = MILLIONS[name]

    def case(bench):
        path = sample(bench, name, made)
        sort = "std::sort of (two offsets, index)"
        compare(bench, title, [
            ("check_boxes, from metadata objects", ours(bench, "cover", path), sort),
            ("check_boxes, from flat arrays", ours(bench, "flat", path), sort),
            ("check_overlaps, from metadata objects", ours(bench, "overlaps", path), sort),
            ("check_boxes, one shard too small", ours(bench, "cover", path, "--break"), sort),
            (sort, ours(bench, "sort", path), None)])
    return case


CASES = {name: beside_torch(name) for name in LAYOUTS} | {name: beside_sort(name) for name in MILLIONS}
