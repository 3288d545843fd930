# SPDX-License-Identifier: Apache-2.0
"""Chunks that do not hold each element of a tensor once are an error of every load, also with PyTorch's planner."""
import os
import pickle
import shutil
import warnings
from collections import Counter
from itertools import product
from random import Random

import common

common.need_torch()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as torch_checkpoint  # noqa: E402
from torch.distributed.checkpoint import FileSystemWriter  # noqa: E402
from torch.distributed.checkpoint import metadata as dcp  # noqa: E402
from torch.distributed.checkpoint._extension import ExtensionRegistry  # noqa: E402
from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import Shard, distribute_tensor  # noqa: E402

import shardmesh  # noqa: E402
import shardmesh.dcp  # noqa: E402
from rank_group import run_ranks  # noqa: E402
from shardmesh.dcp._cover import covers_once  # noqa: E402
from stream_extension import Turned  # noqa: E402

warnings.filterwarnings("ignore")


def written_in_parts(path, shape, boxes, **options):
    """Writes a checkpoint whose tensor w has these chunks, each (offsets, sizes) and filled with its number from 1."""
    parts = {str(number): torch.full(sizes, number + 1.0) for number, (_, sizes) in enumerate(boxes)}
    torch_checkpoint.save(parts, storage_writer=FileSystemWriter(path, **options))
    metadata = pickle.loads((path / ".metadata").read_bytes())
    places = {index.fqn: place for index, place in metadata.storage_data.items()}
    metadata.storage_data = {dcp.MetadataIndex("w", torch.Size(offsets), number): places[str(number)]
                             for number, (offsets, _) in enumerate(boxes)}
    chunks = [dcp.ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for offsets, sizes in boxes]
    metadata.state_dict_metadata = {"w": dcp.TensorStorageMetadata(dcp.TensorProperties(torch.float32), torch.Size(shape), chunks)}
    metadata.planner_data = {"w": ("w",)}
    (path / ".metadata").write_bytes(pickle.dumps(metadata))


#: Shapes, and chunks that do not hold each element once.
UNCOVERED = (((8,), [((0,), (4,))]), ((8,), [((4,), (4,))]), ((8,), [((0,), (4,)), ((2,), (4,))]), ((2, 4), [((0, 1), (2, 3))]),
             ((4, 4), [((0, 0), (2, 4)), ((1, 0), (2, 4))]), ((4, 4), [((0, 0), (2, 2)), ((2, 2), (2, 2)), ((0, 2), (4, 2))]))


def ranks_of_which_one_is_gone(rank, world, path):
    """PyTorch's planner on a folder that lacks the description of a rank."""
    mesh = init_device_mesh("cpu", (world,))
    torch_checkpoint.save({"w": distribute_tensor(torch.arange(9.0), mesh, [Shard(0)])},
                          storage_writer=FileSystemWriter(path), use_collectives=False)
    dist.barrier()
    if rank == 1:
        os.unlink(f"{path}/__1.metadata")
    dist.barrier()
    try:
        torch_checkpoint.load({"w": distribute_tensor(torch.zeros(9), mesh, [Shard(0)])},
                              storage_reader=shardmesh.dcp.StorageReader(path))
    except CheckpointException as problem:
        return {other: (wrapped[0].code, wrapped[0].key) for other, wrapped in problem.failures.items()}
    return None


class CoverTest(common.WorkTest):
    def test_a_cover_is_exact_as_counted_element_by_element(self):
        random = Random(common.seed())
        answers = []
        for _ in range(4000 if common.long_runs() else 800):
            whole = [random.randrange(1, 5) for _ in range(random.randrange(3))]
            boxes = [((0,) * len(whole), tuple(whole))]
            for _ in range(random.randrange(5)):  # cut a box in two
                begin, sizes = boxes.pop(random.randrange(len(boxes)))
                dimension = random.randrange(len(whole)) if whole else 0
                at = random.randrange(sizes[dimension] + 1) if whole else 0
                for low, high in ((0, at), (at, sizes[dimension])) if whole else ((0, 0),):
                    boxes.append((tuple(one + low * (number == dimension) for number, one in enumerate(begin)),
                                  tuple(high - low if number == dimension else one for number, one in enumerate(sizes))))
            if random.randrange(2):  # move, repeat, or lose one
                begin, sizes = boxes.pop(random.randrange(len(boxes)))
                boxes += [(tuple(one + random.randrange(-1, 2) for one in begin), sizes)] * random.randrange(3)
            counts = Counter(element for begin, sizes in boxes
                             for element in product(*(range(low, low + size) for low, size in zip(begin, sizes))))
            expected = counts == Counter(product(*map(range, whole)))
            answers.append(expected)
            self.assertEqual(covers_once(boxes, ((0,) * len(whole), whole)), expected, (common.seed(), whole, boxes))
        self.assertEqual(set(answers), {False, True})

    def test_pytorchs_planner_leaves_no_element_as_it_is(self):
        for number, (shape, boxes) in enumerate(UNCOVERED):
            path = self.work / f"{number}"
            written_in_parts(path, shape, boxes)
            with self.assertRaises(CheckpointException) as caught:
                torch_checkpoint.load({"w": torch.zeros(shape)}, storage_reader=shardmesh.dcp.StorageReader(path))
            problem = caught.exception.failures[0][0]
            self.assertEqual((problem.code, problem.key, problem.path), ("gap", "w", str(path)))
        good = self.work / "good"
        written_in_parts(good, (4, 4), [((0, 0), (2, 4)), ((2, 0), (2, 1)), ((2, 1), (2, 3))])
        state = {"w": torch.zeros(4, 4)}
        torch_checkpoint.load(state, storage_reader=shardmesh.dcp.StorageReader(good))
        self.assertEqual(state["w"].tolist(), [[1.0] * 4] * 2 + [[2.0] + [3.0] * 3] * 2)

    def test_chunks_behind_stream_extensions_cover_what_is_loaded(self):
        registry = ExtensionRegistry()
        registry.register(Turned)
        for number, (shape, boxes) in enumerate(UNCOVERED):
            path = self.work / f"{number}"
            written_in_parts(path, shape, boxes, _extensions=[Turned()])
            with self.assertRaises(shardmesh.Error) as caught:
                shardmesh.dcp.load({"w": torch.zeros(shape)}, checkpoint_id=path, extension_registry=registry)
            self.assertEqual((caught.exception.code, caught.exception.key), ("gap", "w"), (shape, boxes))

    def test_a_ranks_description_that_is_gone_is_a_gap(self):
        for failures in run_ranks(3, ranks_of_which_one_is_gone, str(self.work / "saved")):
            self.assertEqual(failures, {rank: ("gap", "w") for rank in range(3)})

    def test_a_file_that_a_hugging_face_folder_lacks_is_a_gap(self):
        shutil.copytree(common.GOLDEN / "hf_sharded" / "checkpoint", self.work / "hf")
        shapes = {key: entry.shape for key, entry in shardmesh.open(self.work / "hf").items()}
        os.unlink(self.work / "hf" / "shard-00001-model-00001-of-00001.safetensors")
        with self.assertRaises(CheckpointException) as caught:
            torch_checkpoint.load({"a.w": torch.zeros(shapes["a.w"])}, storage_reader=shardmesh.dcp.StorageReader(self.work / "hf"))
        problem = caught.exception.failures[0][0]
        self.assertEqual((problem.code, problem.key), ("gap", "a.w"))


if __name__ == "__main__":
    common.main()
