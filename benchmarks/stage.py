# SPDX-License-Identifier: Apache-2.0
"""An FSDP model of 1 GiB on two ranks that are threads: saved from its flat shards and loaded into them, beside the
state dict and plain files of the same bytes; and the time for which start_save holds up a training step, with and
without a pool."""
import shutil

MIB = 1 << 20
SIZE = 1024 * MIB
RANKS = 2


def compare(bench, title, sides, durable=False, shows_faults=False):
    folder = bench.work / "stage"
    extra, faults = {name: [] for name in sides}, {name: [] for name in sides}

    def side(name, case):
        def run(repeat):
            shutil.rmtree(folder, ignore_errors=True)
            said = bench.json_of([bench.build / "bin" / "shardmesh_stage_bench", case, folder, SIZE, repeat,
                                  "durable" if durable else "cached", RANKS])
            extra[name].append(said["extra_bytes"])
            faults[name].append(said["faults"])
            return said
        return run
    folder.mkdir(parents=True, exist_ok=True)
    bench.compare(title, folder, {name: side(name, case) for name, case in sides.items()})
    for name in sides:
        print(f"  {name:<44} {max(extra[name]) / MIB:8.0f} MiB beside the model"
              + (f", {min(faults[name]):,} page faults in the last run" if shows_faults else ""), flush=True)
    shutil.rmtree(folder, ignore_errors=True)


def save(durable):
    def case(bench):
        how = "durably" if durable else "without fsync"
        compare(bench, f"save of an FSDP model of 1 GiB, {RANKS} ranks, {how}", {
            "shardmesh::save of local_view(model)": "save_in_place",
            "shardmesh::save of its sharded state dict": "save_state",
            "plain pwrite of the shards" + (" + fsync" if durable else ""): "plain_write"}, durable)
    return case


def load(bench):
    compare(bench, f"load of an FSDP model of 1 GiB, {RANKS} ranks, warm cache", {
        "shardmesh::load of local_view(model)": "load_in_place",
        "shardmesh::load, load_state_dict": "load_state",
        "plain pread into the shards": "plain_read"})


def start(bench):
    compare(bench, f"what start_save of 1 GiB keeps {RANKS} ranks from going on", {
        "shardmesh::start_save, a staging_pool": "start_pool",
        "shardmesh::start_save": "start",
        "plain memcpy into memory that is there": "plain_copy"}, shows_faults=True)


CASES = {"fsdp_save": save(True), "fsdp_save_cached": save(False), "fsdp_load": load, "start_save": start}
