# SPDX-License-Identifier: Apache-2.0
"""Checks that bad arguments of any kind raise shardmesh.Error, and when destinations may share memory. In the ordinary
run, a third of the bad values meets each option."""
import gc
import math
import os
import random
import threading

import common

common.need_torch()
import numpy  # noqa: E402
import torch  # noqa: E402

import shardmesh  # noqa: E402
import shardmesh.dcp  # noqa: E402

FOLDER = common.GOLDEN / "single_rank" / "checkpoint"


class Evil:
    """Raises on every access."""

    def __getattr__(self, name):
        raise ZeroDivisionError(name)

    def _raise(self, *arguments):
        raise ZeroDivisionError("evil")

    __bool__ = __index__ = __float__ = __iter__ = __len__ = __str__ = __repr__ = __eq__ = __fspath__ = _raise
    __hash__ = object.__hash__


VALUES = (None, True, -1, 0, 3, 1 << 70, 2.5, math.nan, "", "x", "\ud800", "\udc80", "a\0b", "s3://b/x", b"\xff", (), (1,),
          [[]], [None], {}, {1: 2}, {"w": None}, object(), Evil(), numpy.zeros(2), numpy.float32(1), torch.zeros(2), len,
          slice(None), ..., ((1 << 70,), (1,)), range(3), "S(0)", "1,2", shardmesh.Error("io", "x"))


def cyclic():
    made = {"w": torch.zeros(2)}
    made["self"] = made
    return made


def cyclic_list():
    made = [torch.zeros(2)]
    made.append({"below": (made,)})
    return {"a": {"b": made}}


def deep():
    made = {}
    for _ in range(5000):
        made = {"x": made}
    return made


def drawn(name):
    """All values in long runs, else a third, which `common.seed()` draws for each name."""
    if common.long_runs():
        return VALUES
    return random.Random(f"{common.seed()} {name}").sample(VALUES, len(VALUES) // 3)


class OnlyOursTest(common.WorkTest):
    def only_ours(self, name, call, *arguments, **options):
        try:
            call(*arguments, **options)
        except shardmesh.Error as problem:
            str(problem).encode("utf-8", "surrogateescape")
            return problem
        except BaseException as problem:
            shown = [type(one).__name__ for one in (*arguments, *options.values())]
            self.fail(f"{name} with {shown}, {list(options)}: {type(problem).__name__}: {problem}")


class HostileTest(OnlyOursTest):
    def calls(self):
        to, opened = self.work / "out", shardmesh.open(FOLDER)
        state = {"w": torch.zeros(2)}
        entry = opened.tensors[0]
        into = {entry.key: torch.zeros(entry.shape, dtype=getattr(torch, entry.dtype))}
        return {
            "open": lambda v: shardmesh.open(v),
            "open file": lambda v: shardmesh.open(FOLDER / "__0_0.distcp", only_keys=v),
            "load path": lambda v: shardmesh.load(v, "w"),
            "load key": lambda v: shardmesh.load(FOLDER, v),
            "load box": lambda v: shardmesh.load(FOLDER, entry.key, v),
            "map": lambda v: shardmesh.map_tensor(FOLDER, entry.key, v),
            "map key": lambda v: shardmesh.map_tensor(FOLDER, v),
            "inspect": lambda v: shardmesh.inspect(v),
            "verify": lambda v: shardmesh.verify(v),
            "diff": lambda v: shardmesh.diff(FOLDER, v),
            "convert to": lambda v: shardmesh.convert(FOLDER, v, "zip"),
            "convert format": lambda v: shardmesh.convert(FOLDER, to, v, overwrite=True),
            "convert like": lambda v: shardmesh.convert(FOLDER, to, "dcp", like=v, overwrite=True),
            "convert dedup": lambda v: shardmesh.convert(FOLDER, to, "dcp", dedup=v, overwrite=True),
            "convert selection": lambda v: shardmesh.convert(FOLDER, to, "dcp", selection=v, overwrite=True),
            "diff selection": lambda v: shardmesh.diff(FOLDER, FOLDER, selection=v),
            "save selection": lambda v: shardmesh.save(state, to, selection=v, overwrite=True),
            "reshard mesh": lambda v: shardmesh.reshard(FOLDER, to, v, place=".*=R", overwrite=True),
            "reshard place": lambda v: shardmesh.reshard(FOLDER, to, 2, place=v, overwrite=True),
            "reshard default": lambda v: shardmesh.reshard(FOLDER, to, 2, default=v, overwrite=True),
            "save": lambda v: shardmesh.save(v, to, overwrite=True),
            "save value": lambda v: shardmesh.save({"a": v}, to, overwrite=True),
            "save key": lambda v: shardmesh.save({v: torch.ones(1), "o": {v: [1]}}, to, overwrite=True),
            "save pt": lambda v: shardmesh.save({"a": {v: torch.ones(1)}, "b": v}, to / "x.pt", "pt", overwrite=True),
            "save path": lambda v: shardmesh.save(state, v, format="zip"),
            "save format": lambda v: shardmesh.save(state, to, v, overwrite=True),
            "load_into": lambda v: opened.load_into(v),
            "load_into tensor": lambda v: opened.load_into({entry.key: v}),
            "load_into three": lambda v: opened.load_into([(entry.key, v, into[entry.key])]),
            "start_load": lambda v: opened.start_load(v).wait(),
            "on_arrival": lambda v: opened.start_load(into, on_arrival=v).wait() if not callable(v) else None,
            "timeout": lambda v: opened.start_load(into).wait(v),
            "progress": lambda v: opened.load_into(into, progress=v) if not callable(v) else None,
            "index": lambda v: opened[entry.key][v],
            "index slice": lambda v: opened[entry.key][v:v],
            "object": lambda v: opened.load_object(v),
            "object bytes": lambda v: opened.object_bytes(v),
            "Layout": lambda v: shardmesh.Layout(v, (2,), (0, 1), "S(0)").boxes(0),
            "Layout mesh": lambda v: shardmesh.Layout((4,), v, (0, 1), "S(0)").boxes(0),
            "Layout ranks": lambda v: shardmesh.Layout((4,), (2,), v, "S(0)").boxes(0),
            "Layout placements": lambda v: shardmesh.Layout((4,), (2,), (0, 1), v).boxes(0),
            "Layout rank": lambda v: shardmesh.Layout((4,), (2,), (0, 1), "S(0)").boxes(v),
            "Layout shape": lambda v: shardmesh.Layout((4,), (2,), (0, 1), "S(0)").local_shape(v),
            "Layout.of": lambda v: shardmesh.Layout.of(v),
            "Layout.on": lambda v: shardmesh.Layout.on(v, v, v),
            "redistribute": lambda v: shardmesh.redistribute(v),
            "full_state_dict": lambda v: list(shardmesh.full_state_dict(v)),
            "Shards.of": lambda v: shardmesh.Shards.of(v),
            "flatten": lambda v: shardmesh.flatten_sharded_tensors(v),
            "dcp.load": lambda v: shardmesh.dcp.load(v, checkpoint_id=FOLDER),
            "dcp.load id": lambda v: shardmesh.dcp.load(dict(into), checkpoint_id=v),
            "dcp.load value": lambda v: shardmesh.dcp.load({entry.key: v}, checkpoint_id=FOLDER),
            "dcp.save": lambda v: shardmesh.dcp.save(v, checkpoint_id=to, overwrite=True),
            "dcp.save value": lambda v: shardmesh.dcp.save({"a": v}, checkpoint_id=to, overwrite=True),
            "dcp.save key": lambda v: shardmesh.dcp.save({"a": {v: torch.ones(1)}}, checkpoint_id=to, overwrite=True),
            "StorageReader": lambda v: shardmesh.dcp.StorageReader(v),
            "StorageWriter": lambda v: shardmesh.dcp.StorageWriter(v),
        }

    def test_every_value_to_every_function(self):
        for name, call in self.calls().items():
            for value in VALUES:
                if " key" in name or name == "save pt":
                    try:
                        hash(value)
                    except TypeError:
                        continue  # not a key of a dict
                with self.subTest(f"{name}: {type(value).__name__}"):
                    self.only_ours(name, call, value)

    def test_every_value_to_every_option(self):
        opened, to = shardmesh.open(FOLDER), self.work / "out"
        entry = opened.tensors[0]
        into = {entry.key: torch.zeros(entry.shape, dtype=getattr(torch, entry.dtype))}
        functions = {
            "open": (lambda **o: shardmesh.open(FOLDER, **o), "only_keys all_parts dequantize block_size limit_factor rank keys_at_ranks"),
            "load": (lambda **o: shardmesh.load(FOLDER, entry.key, **o), "weights_only rank keys_at_ranks"),
            "map": (lambda **o: shardmesh.map_tensor(FOLDER, entry.key, **o), "allow_unaligned"),
            "verify": (lambda **o: shardmesh.verify(FOLDER, **o), "quick all_parts rank keys_at_ranks threads progress"),
            "diff": (lambda **o: shardmesh.diff(FOLDER, FOLDER, **o), "tolerance layout ignore_dtype all_parts rank threads progress"),
            "convert": (lambda **o: shardmesh.convert(FOLDER, to, **{"format": "dcp", "overwrite": True, **o}),
                        "overwrite max_shard_bytes skip_objects skip_unsupported nest components payload item "
                        "allow_shape_mismatch dequantize all_parts rank keys_at_ranks threads memory_bytes progress"),
            "reshard": (lambda **o: shardmesh.reshard(FOLDER, to, 2, **{"place": ".*=R", "overwrite": True, **o}),
                        "allow_shape_mismatch optimizer_follows overwrite skip_unsupported dequantize all_parts rank threads "
                        "memory_bytes"),
            "save": (lambda **o: shardmesh.save({"w": torch.ones(2)}, to, **{"overwrite": True, **o}),
                     "overwrite max_shard_bytes skip_objects payload item threads memory_bytes progress"),
            "load_into": (lambda **o: opened.load_into(into, **o), "threads allow_narrowing allow_shape_mismatch check progress"),
            "dcp.load": (lambda **o: shardmesh.dcp.load(dict(into), checkpoint_id=FOLDER, **o),
                         "no_dist allow_narrowing threads progress rank extension_registry"),
            "dcp.save": (lambda **o: shardmesh.dcp.save({"w": torch.ones(2)}, checkpoint_id=to, **{"overwrite": True, **o}),
                         "no_dist use_collectives overwrite threads memory_bytes progress"),
            "StorageWriter": (lambda **o: shardmesh.dcp.StorageWriter(to, **o),
                              "overwrite threads memory_bytes thread_count single_file_per_rank sync_files "
                              "per_thread_copy_ahead cache_staged_state_dict _extensions serialization_format"),
        }
        for name, (call, options) in functions.items():
            for option in options.split():
                for value in drawn(f"{name} {option}"):
                    if option == "progress" and callable(value):
                        continue  # the caller's own exception
                    with self.subTest(f"{name} {option}: {type(value).__name__}, SHARDMESH_SEED={common.seed()}"):
                        self.only_ours(name, call, **{option: value})

    def test_state_dicts_that_hold_themselves(self):
        to = self.work / "out"
        for made, key in ((cyclic, "self"), (cyclic_list, "a.b.1.below.0"), (deep, "x.x.x.")):
            for format in ("dcp", "pt", "safetensors", "torch-checkpointing"):
                with self.subTest(f"{made.__name__} as {format}"):
                    problem = self.only_ours("save", shardmesh.save, made(), to, format)
                    self.assertEqual(problem.code, "invalid_argument", str(problem))
                    self.assertTrue(problem.key.startswith(key), problem.key)
            for call in (shardmesh.dcp.save, shardmesh.dcp.load):
                problem = self.only_ours("dcp", call, made(), checkpoint_id=to if call is shardmesh.dcp.save else FOLDER)
                self.assertEqual(problem.code, "invalid_argument", str(problem))
        self.assertEqual(self.left_in_work(), [])

    def test_keys_that_are_no_unicode(self):
        for call in (lambda state: shardmesh.save(state, self.work / "out"),
                     lambda state: shardmesh.save(state, self.work / "out.pt", "pt"),
                     lambda state: shardmesh.dcp.save(state, checkpoint_id=self.work / "out")):
            for state in ({"a\ud800": torch.zeros(1)}, {"a": {"\udfff": 3}}, {"a": [{"\udc80b": torch.zeros(1)}]}):
                problem = self.only_ours("save", call, state)
                self.assertEqual(problem.code, "invalid_argument", str(problem))
                self.assertIn("\\ud", str(problem))
        self.assertEqual(self.left_in_work(), [])
        problem = self.only_ours("load", shardmesh.load, FOLDER, "a\ud800")
        self.assertEqual((problem.code, problem.found), ("invalid_argument", "'a\\ud800'"))

    def test_objects_that_cannot_be_pickled(self):
        class Unpicklable:
            def __reduce__(self):
                raise ZeroDivisionError("no")

        for value in (lambda: 1, Unpicklable(), {1: lambda: 1}.values(), (lambda: 1,)):
            problem = self.only_ours("save", shardmesh.save, {"a": value}, self.work / "out")
            self.assertEqual((problem.code, problem.key), ("unsupported", "a"))
        self.assertEqual(self.left_in_work(), [])

    def test_tensors_without_memory_are_refused_wherever_they_are_given(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        ragged, whole = [torch.ones(2), torch.ones(3)], torch.ones(3, 4)
        with FakeTensorMode():
            fake = torch.empty(3, 4)
        tensors = {"uninitialized parameter": torch.nn.UninitializedParameter(), "uninitialized buffer": torch.nn.UninitializedBuffer(),
                   "zeros": torch._efficientzerotensor(3, 4), "nested": torch.nested.nested_tensor(ragged), "fake": fake,
                   "jagged": torch.nested.nested_tensor(ragged, layout=torch.jagged), "meta": whole.to("meta"),
                   "sparse": whole.to_sparse(), "csr": whole.to_sparse_csr(), "quantized": torch.quantize_per_tensor(whole, 0.1, 0, torch.quint8)}
        if torch.backends.mkldnn.is_available():
            tensors["mkldnn"] = whole.to_mkldnn()
        base, box = self.work / "base", ((0, 0), (3, 4))
        shardmesh.save({"a": whole, "m": {"a": whole, "l": [whole]}}, base)
        for name, tensor in tensors.items():
            calls = {"save": lambda: shardmesh.save({"m": {"a": tensor}}, self.work / "s"),
                     "save pt": lambda: shardmesh.save({"m": [tensor]}, self.work / "s.pt", format="pt"),
                     "load_into": lambda: shardmesh.open(base).load_into({"a": tensor}),
                     "load_into a box": lambda: shardmesh.open(base).load_into([("a", box, tensor)]),
                     "start_load": lambda: shardmesh.open(base).start_load({"a": tensor}),
                     "start_load of other shapes": lambda: shardmesh.open(base).start_load({"a": tensor}, allow_shape_mismatch=True),
                     "dcp.save": lambda: shardmesh.dcp.save({"m": {"a": tensor}}, checkpoint_id=self.work / "d"),
                     "dcp.async_save": lambda: shardmesh.dcp.async_save({"m": [tensor]}, checkpoint_id=self.work / "d").result(),
                     "dcp.load": lambda: shardmesh.dcp.load({"a": tensor}, checkpoint_id=base),
                     "dcp.load below": lambda: shardmesh.dcp.load({"m": {"a": tensor, "l": [whole]}}, checkpoint_id=base)}
            for what, call in calls.items():
                with self.subTest(tensor=name, call=what), self.assertRaises(shardmesh.Error) as caught:
                    call()
                self.assertEqual(caught.exception.code, "unsupported", (name, what, str(caught.exception)))
        self.assertEqual([path.name for path in self.work.iterdir()], ["base"])
        for inside in ({"a": (tensors["uninitialized parameter"],)}, {"lazy": torch.nn.LazyLinear(4)}):
            for call in (lambda: shardmesh.save(inside, self.work / "s"), lambda: shardmesh.dcp.save(inside, checkpoint_id=self.work / "d"),
                         lambda: shardmesh.dcp.async_save(inside, checkpoint_id=self.work / "d").result()):
                with self.subTest(inside=list(inside)), self.assertRaises(shardmesh.Error) as caught:
                    call()
                self.assertEqual(caught.exception.code, "unsupported")

    def test_keys_of_one_text_are_two_keys(self):
        """PyTorch's flattening accepts them if their entries' names differ."""
        import torch.distributed.checkpoint as torch_checkpoint

        for number, below in enumerate(({"None": "t", None: {"a": 1}}, {None: {"a": 1}, "None": "t"}, {"1.5": "t", 1.5: {"a": 1}},
                                        {"1": torch.ones(1), 1: {"a": 1}}, {"1": {"a": torch.ones(1)}, 1: {"b": torch.ones(2)}},
                                        {(1,): {"a": 1}, "(1,)": [torch.ones(1)]})):
            state, ours, theirs = {"b": below}, self.work / f"{number}_ours", self.work / f"{number}_theirs"
            shardmesh.save(state, ours)
            torch_checkpoint.save(state, checkpoint_id=theirs)
            self.assertEqual(sorted(shardmesh.open(ours)), sorted(shardmesh.open(theirs)))
            for key in shardmesh.open(theirs):
                self.assertEqual(str(shardmesh.load(ours, key)), str(shardmesh.load(theirs, key)), key)
        shardmesh.save({"b": {"1": {"a": torch.ones(1)}, 1: {"b": torch.ones(2)}}}, self.work / "both.pt", format="pt")
        self.assertEqual(torch.load(self.work / "both.pt")["b"].keys(), {"1", 1})


class MappedTest(OnlyOursTest):
    def setUp(self):
        super().setUp()
        self.path = self.work / "one.safetensors"
        shardmesh.save({"w": torch.arange(12.0).reshape(4, 3), "half": torch.ones(2, dtype=torch.bfloat16)}, self.path,
                       "safetensors")
        self.opened = shardmesh.open(self.path)

    def test_every_value_to_every_argument(self):
        mapped = self.opened.map_tensor("w")
        calls = {
            "map_tensor": lambda v: self.opened.map_tensor(v),
            "map_tensor box": lambda v: self.opened.map_tensor("w", v),
            "map_tensor offsets": lambda v: self.opened.map_tensor("w", (v, (1, 1))),
            "map_tensor sizes": lambda v: self.opened.map_tensor("w", ((0, 0), v)),
            "map_tensor allow_unaligned": lambda v: self.opened.map_tensor("w", allow_unaligned=v),
            "map": lambda v: self.opened["w"].map(v),
            "map allow_unaligned": lambda v: self.opened["w"].map(allow_unaligned=v),
            "MappedTensor": lambda v: shardmesh.MappedTensor(v, v, v),
            "MappedTensor memory": lambda v: shardmesh.MappedTensor("w", str(self.path), v),
            "__array__": lambda v: mapped.__array__(v),
            "__array__ copy": lambda v: mapped.__array__(copy=v),
        }
        for name, call in calls.items():
            for value in VALUES:
                with self.subTest(f"{name}: {type(value).__name__}"):
                    self.only_ours(name, call, value)
        self.assertEqual(mapped.numpy().tolist(), torch.arange(12.0).reshape(4, 3).tolist())

    def test_boxes_that_are_none(self):
        huge = (1 << 63) - 1
        for box, code in ((((-1, 0), (1, 1)), "shape_mismatch"), (((0, 0), (-1, 1)), "shape_mismatch"),
                          (((huge, 0), (1, 1)), "shape_mismatch"), (((0, 0), (huge, huge)), "shape_mismatch"),
                          (((1 << 70, 0), (1, 1)), "invalid_argument"), (((math.nan, 0), (1, 1)), "invalid_argument"),
                          (((0.5, 0), (1, 1)), "invalid_argument"), (((0, 0), (1,)), "shape_mismatch"),
                          (("0", "0"), "invalid_argument"), (((0, 0),), "invalid_argument")):
            for call in (self.opened.map_tensor, lambda _, where: self.opened["w"].map(where)):
                problem = self.only_ours("map", call, "w", box)
                self.assertIsNotNone(problem, box)
                self.assertEqual((problem.code, problem.key), (code, "w"), f"{box}: {problem}")

    def test_what_numpy_asks_for(self):
        mapped, expected = self.opened.map_tensor("w"), torch.arange(12.0).reshape(4, 3).numpy()
        for dtype, copy, shares in ((None, None, True), (None, False, True), (None, True, False), ("float32", None, True),
                                    ("float32", False, True), ("float32", True, False), ("float64", None, False)):
            made = mapped.__array__(dtype, copy)
            self.assertEqual((made.tolist(), made.dtype), (expected.tolist(), numpy.dtype(dtype or "float32")))
            self.assertEqual(numpy.shares_memory(made, mapped.numpy()), shares, f"{dtype} {copy}")
        with self.assertRaises(ValueError) as caught:
            mapped.__array__("float64", False)
        self.assertEqual(str(caught.exception), "w: float64 needs a copy of float32")
        problem = self.only_ours("numpy", self.opened.map_tensor("half").numpy)
        self.assertEqual((problem.code, problem.key, problem.hint), ("unsupported", "half", "call torch()"))

    def test_after_the_checkpoint_has_gone_and_in_other_threads(self):
        mapped, found = self.opened.map_tensor("w"), []
        del self.opened
        gc.collect()

        def use():
            mapped.check()
            found.append((mapped.shape, mapped.strides, mapped.dtype, mapped.nbytes, mapped.numpy().tolist(),
                          mapped.torch().tolist()))

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rows = torch.arange(12.0).reshape(4, 3).tolist()
        self.assertEqual(found, [((4, 3), (3, 1), "float32", 48, rows, rows)] * 4)
        os.truncate(self.path, 8)
        problems = []
        thread = threading.Thread(target=lambda: problems.append(self.only_ours("check", mapped.check)))
        thread.start()
        thread.join()
        self.assertEqual([(problem.code, problem.path) for problem in problems], [("io", str(self.path))])


class FsdpTest(OnlyOursTest):
    def test_every_value_to_every_argument(self):
        import shardmesh.fsdp

        extensions, one = shardmesh.fsdp.DTensorExtensions(None), torch.zeros(2)
        calls = {
            "use": (lambda v: shardmesh.fsdp.use(v), "model", "a torch.nn.modules.module.Module"),
            "chunk_dtensor": (lambda v: extensions.chunk_dtensor(v, 0, None), "tensor", "a torch.Tensor"),
            "chunk_dtensor mesh": (lambda v: extensions.chunk_dtensor(one, 0, v), "device_mesh",
                                   "a torch.distributed.device_mesh.DeviceMesh"),
            "all_gather_dtensor": (lambda v: extensions.all_gather_dtensor(v, None), "tensor",
                                   "a torch.distributed.tensor.DTensor"),
        }
        for name, (call, argument, expected) in calls.items():
            for value in VALUES:
                with self.subTest(f"{name}: {type(value).__name__}"):
                    problem = self.only_ours(name, call, value)
                    if isinstance(value, torch.Tensor) and expected == "a torch.Tensor" or value is None and "mesh" in name:
                        self.assertEqual((problem.code, problem.found), ("unsupported", "no parent mesh"))
                        continue
                    self.assertEqual((problem.code, problem.expected), ("invalid_argument", expected))
                    self.assertIn(f"the argument {argument} ", str(problem))

    def test_a_model_without_fsdp_stays_as_it_is(self):
        import shardmesh.fsdp

        model = torch.nn.Linear(2, 2)
        before = dict(vars(model))
        self.assertIs(shardmesh.fsdp.use(model), model)
        self.assertEqual(vars(model), before)

    def test_meshes_that_do_not_fit(self):
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, distribute_tensor

        import shardmesh.fsdp

        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        extensions, line = shardmesh.fsdp.DTensorExtensions(None), init_device_mesh("cpu", (1,))
        problem = self.only_ours("chunk_dtensor", extensions.chunk_dtensor, torch.zeros(2), 0, line)
        self.assertEqual((problem.code, problem.found), ("unsupported", "a parent mesh of one dimension"))
        grid = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
        tensor = distribute_tensor(torch.zeros(2), grid, [Replicate(), Replicate()])
        for other in (None, line):
            problem = self.only_ours("all_gather_dtensor", extensions.all_gather_dtensor, tensor, other)
            self.assertEqual((problem.code, problem.expected), ("invalid_argument", str(other)))
        for value in (*VALUES[1:], len):
            problem = self.only_ours("all_gather_dtensor", extensions.all_gather_dtensor, tensor, value)
            self.assertEqual((problem.code, problem.expected),
                             ("invalid_argument", "a torch.distributed.device_mesh.DeviceMesh"))


class OneMemoryTest(common.WorkTest):
    def setUp(self):
        super().setUp()
        shardmesh.save({"a": torch.arange(12.0).reshape(3, 4), "b": torch.arange(12.0).reshape(3, 4) + 1,
                        "same": torch.arange(12.0).reshape(3, 4)}, self.work / "saved")
        self.opened = shardmesh.open(self.work / "saved")

    def loads(self):
        return (lambda wanted: self.opened.load_into(wanted), lambda wanted: self.opened.start_load(wanted).wait())

    def refused(self, wanted, code, *keys):
        for load in self.loads():
            with self.assertRaises(shardmesh.Error) as caught:
                load(wanted)
            self.assertEqual(caught.exception.code, code)
            for key in keys:
                self.assertIn(key, str(caught.exception))

    def test_two_keys_that_fill_the_same_memory(self):
        one = torch.zeros(3, 4)
        self.refused({"a": one, "b": one}, "disagreement", "a", "b")
        self.refused([("a", None, one), ("b", None, one.view(3, 4))], "disagreement")
        for load in self.loads():  # tied weights
            load({"a": one.zero_(), "same": one})
            self.assertEqual(one.tolist(), torch.arange(12.0).reshape(3, 4).tolist())
            load([("a", None, one.zero_()), ("a", None, one), ("same", None, one)])
            self.assertEqual(one.tolist(), torch.arange(12.0).reshape(3, 4).tolist())

    def test_memory_that_overlaps_in_part(self):
        base = torch.zeros(64)
        view = lambda offset, size, stride: base.as_strided(size, stride, offset)  # noqa: E731
        for other in (view(1, (3, 4), (4, 1)), view(0, (3, 4), (1, 3)), view(11, (3, 4), (4, 1)), view(0, (3, 4), (8, 2)),
                      view(2, (3, 4), (5, 1))):
            self.refused({"a": view(0, (3, 4), (4, 1)), "b": other}, "overlap", "a", "b")
        self.refused([("a", ((0, 0), (2, 4)), base[:8].view(2, 4)), ("a", ((1, 0), (2, 4)), base[3:11].view(2, 4))],
                     "overlap", "a")
        self.refused([("a", ((0, 0), (1, 4)), base[:4].view(1, 4)), ("a", ((1, 0), (1, 4)), base[:4].view(1, 4))], "overlap")
        self.refused({"a": base[:12].view(3, 4), "b": base[8:20].view(torch.int32).view(3, 4).view(torch.float32)}, "overlap")
        self.assertEqual(base.tolist(), [0.0] * 64)

    def test_boxes_of_one_key_share_memory_where_they_share_elements(self):
        for load in self.loads():
            base = torch.zeros(12)
            load([("a", ((0, 0), (2, 4)), base[:8].view(2, 4)), ("a", ((1, 0), (2, 4)), base[4:12].view(2, 4))])
            self.assertEqual(base.tolist(), torch.arange(12.0).tolist())

    def test_conjugates_are_compared_by_their_own_memory(self):
        shardmesh.save({"a": torch.tensor([1 + 2j, 3 - 1j]), "b": torch.tensor([2 + 2j, 3 - 1j])}, self.work / "complex")
        opened = shardmesh.open(self.work / "complex")
        base = torch.zeros(3, dtype=torch.complex64)
        with self.assertRaises(shardmesh.Error) as caught:
            opened.load_into({"a": base[:2].conj(), "b": base[1:].conj()})
        self.assertEqual((caught.exception.code, caught.exception.key), ("overlap", "b"))
        with self.assertRaises(shardmesh.Error) as caught:
            opened.load_into({"a": base[:2].conj(), "b": base[:2].conj()})
        self.assertEqual((caught.exception.code, caught.exception.key), ("disagreement", "b"))
        self.assertEqual(base.tolist(), [0, 0, 0])
        opened.load_into([("a", None, base[:2].conj()), ("a", None, base[:2].conj())])
        self.assertEqual(base.tolist(), [1 - 2j, 3 + 1j, 0])

    def test_interleaved_memory_is_apart(self):
        for load in self.loads():
            base = torch.zeros(3, 8)
            load({"a": base[:, 0::2], "b": base[:, 1::2]})
            self.assertEqual(base[:, 0::2].tolist(), torch.arange(12.0).reshape(3, 4).tolist())
            self.assertEqual(base[:, 1::2].tolist(), (torch.arange(12.0).reshape(3, 4) + 1).tolist())
            base = torch.zeros(3, 8)
            load({"a": base[:, :4], "b": base[:, 4:]})
            self.assertEqual(base[:, 4:].tolist(), (torch.arange(12.0).reshape(3, 4) + 1).tolist())

    def test_dcp_load_of_tied_weights(self):
        one = torch.zeros(3, 4)
        shardmesh.dcp.load({"a": one, "same": one}, checkpoint_id=self.work / "saved")
        self.assertEqual(one.tolist(), torch.arange(12.0).reshape(3, 4).tolist())
        with self.assertRaises(shardmesh.Error) as caught:
            shardmesh.dcp.load({"a": one, "b": one}, checkpoint_id=self.work / "saved")
        self.assertEqual(caught.exception.code, "disagreement")


if __name__ == "__main__":
    common.main()
