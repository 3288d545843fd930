# SPDX-License-Identifier: Apache-2.0
"""Deltas of bfloat16 weights of which 1 % changed: written and applied by one thread with the fastest setting, beside memcpy of
the same bytes; and the size of the file (aim: 35 MiB per GiB)."""
MIB = 1 << 20
SIZE = 512 * MIB


def delta(bench):
    folder = bench.work / "delta"
    found = {}

    def side(case):
        def run(repeat):
            said = bench.json_of([bench.build / "bin" / "shardmesh_delta_bench", case, folder, SIZE, repeat])
            found.update(said)
            return said
        return run
    folder.mkdir(parents=True, exist_ok=True)
    bench.compare("the delta of 512 MiB of bfloat16 weights, 1 % changed, one thread, level -7 (aim: x0.5 of memcpy)", folder, {
        "shardmesh::save_delta": side("make"), "memcpy of the same bytes": side("memcpy")})
    bench.compare("the same delta applied to its base, into memory (aim: x0.7 of memcpy)", folder, {
        "shardmesh::open_delta, load_into": side("apply"), "memcpy of the same bytes": side("memcpy")})
    if found:
        print(f"  the delta has {found['delta_bytes'] * 1024 / SIZE:.1f} MiB per GiB (aim: at most 35)", flush=True)


CASES = {"delta": delta}
