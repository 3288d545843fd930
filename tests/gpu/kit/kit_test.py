# SPDX-License-Identifier: Apache-2.0
"""Tests of the GPU kit's scripts, with small programs in place of the suites.

    kit_test.py
"""
import json
import sys
import tempfile
import time
import unittest
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parent))
import main
import make
import parts
import report
import running

JUNIT = """<testsuites><testsuite name="s" errors="0" failures="1" tests="3">
<testcase classname="s.global" name="moves"/>
<testcase classname="s.global" name="adds"><failure message="1 == 2" type="CHECK">no</failure></testcase>
<testcase classname="s.global" name="needs it"><skipped message="no GPU" type="SKIP"/></testcase>
</testsuite></testsuites>"""
GPU = {"gpus": [{"name": "GPU", "architecture": "sm_90"}], "no_gpu": "", "cudart": "/c/libcudart.so.13", "torch": "2.13",
       "nccl": "/n/libnccl.so.2", "nvcc": "/c/nvcc", "compute_sanitizer": "/c/compute-sanitizer"}


def shell(text, **more):
    return running.Part("a part", "Suites", ["sh", "-c", text], **{"seconds": 20, **more})


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.work = Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def run_part(self, part):
        return running.run(part, self.work, part.seconds)

    def kit(self, machine=GPU, **modes):
        """A kit whose kernels were compiled, with empty programs."""
        for name in ("kit", "prebuilt"):
            (self.work / name).mkdir(exist_ok=True)
        names = ("device", "staged", "conformance", "excluded")
        (self.work / "kit" / "suites.json").write_text(json.dumps(dict.fromkeys(names, "~[x]")))
        (self.work / "kit" / "version.txt").write_text("shardmesh 0, commit 0\n")
        for name in ("libshardmesh_cuda_kernels.so", "kernels_test"):
            (self.work / "prebuilt" / name).touch()
        return parts.Kit(self.work, self.work, machine, modes.get("double", False), modes.get("short", False))


class Running(Case):
    def test_status_0_passes_and_another_fails_with_the_end_of_the_output(self):
        self.assertEqual(self.run_part(shell("exit 0")).verdict, "passed")
        failed = self.run_part(shell("echo some reason; exit 3"))
        self.assertEqual((failed.verdict, failed.text), ("FAILED", "status 3\nsome reason"))
        killed = self.run_part(shell("kill -SEGV $$"))
        self.assertEqual((killed.verdict, killed.text.splitlines()[0]), ("FAILED", "status -11"))

    def test_a_program_that_is_missing_fails(self):
        outcome = self.run_part(running.Part("a part", "Suites", ["/nowhere/program"], 20))
        self.assertEqual(outcome.verdict, "FAILED")
        self.assertIn("/nowhere/program", outcome.text)

    def test_status_77_is_skipped_with_its_reason(self):
        outcome = self.run_part(shell("echo 'skipped: there is no GPU'; echo more; exit 77"))
        self.assertEqual((outcome.verdict, outcome.text), ("skipped", "there is no GPU"))

    def test_a_part_is_cut_off_at_its_limit_with_all_its_processes(self):
        began = time.monotonic()
        outcome = self.run_part(shell(f"(sleep 5; touch {self.work}/late) & echo begun; sleep 60", seconds=1))
        self.assertEqual(outcome.verdict, "cut off")
        self.assertIn("begun", outcome.text)
        self.assertLess(time.monotonic() - began, 4)
        time.sleep(max(0, began + 5.5 - time.monotonic()))
        self.assertFalse((self.work / "late").exists())

    def test_rows_and_tables_are_read_and_other_lines_are_not(self):
        outcome = self.run_part(shell("""echo '{"what": "a", "gb_s": 2}'; echo '{broken'; echo '| x | 1 |'; echo text"""))
        self.assertEqual((outcome.rows, outcome.table), ([{"what": "a", "gb_s": 2}], ["| x | 1 |"]))

    def test_failed_and_skipped_cases_of_catch_are_named(self):
        part = shell(f"cat > {self.work}/a-part.xml <<'X'\n{JUNIT}\nX\nexit 1", is_catch=True)
        outcome = self.run_part(part)
        self.assertEqual((outcome.problems, outcome.skips), (["adds"], ["needs it: no GPU"]))
        self.assertEqual(outcome.counts, {"cases": 3, "failed": 1, "skipped": 1})

    def test_a_refusal_of_nccl_is_a_reason_only_where_ranks_share_a_gpu(self):
        text = "echo 'Duplicate GPU detected : rank 1 and rank 0'; exit 1"
        self.assertEqual(self.run_part(shell(text)).verdict, "FAILED")
        outcome = self.run_part(shell(text, shares_gpu=True))
        self.assertEqual(outcome.verdict, "skipped")
        self.assertIn("NCCL refuses several ranks on one GPU: Duplicate GPU", outcome.text)


class Parts(Case):
    def test_on_a_gpu_the_limits_add_up_to_less_than_eight_minutes(self):
        kit = self.kit()
        limits = [part.seconds for part in [parts.compile_part(kit), *parts.later_parts(kit)]
                  if part.name != "kernels against the reference, emulated on the host"]
        self.assertLess(sum(limits), parts.GPU_SECONDS)
        self.assertLessEqual(parts.GPU_SECONDS + main.REPORT_SECONDS, 480)

    def test_each_section_of_the_report_has_parts_and_each_part_a_section_and_a_name_of_its_own(self):
        kit = self.kit()
        all_parts = [parts.compile_part(kit), *parts.later_parts(kit)]
        self.assertEqual({part.section for part in all_parts}, set(report.SECTIONS))
        self.assertEqual(len({part.name for part in all_parts}), len(all_parts))

    def test_without_a_gpu_every_part_that_needs_one_has_the_reason(self):
        kit = self.kit({**GPU, "gpus": [], "no_gpu": "no driver"})
        runs = [part.name for part in parts.later_parts(kit) if not part.reason]
        self.assertEqual(runs, ["kernels against the reference, emulated on the host"])
        self.assertIn("no GPU: no driver", {part.reason for part in parts.later_parts(kit)})
        self.assertEqual(parts.compile_part(kit).reason, "")

    def test_with_the_double_all_suites_run_on_a_machine_that_has_nothing(self):
        machine = {**GPU, **dict.fromkeys(("nccl", "nvcc", "torch", "cudart", "compute_sanitizer")), "gpus": [], "no_gpu": "none"}
        kit = self.kit(machine, double=True)
        for name in ("libshardmesh_cuda_kernels.so", "kernels_test"):
            (self.work / "prebuilt" / name).unlink()
        skipped = {part.name for part in parts.later_parts(kit) if part.reason}
        self.assertEqual(skipped, {
            "kernels against the reference", "compute-sanitizer memcheck", "compute-sanitizer racecheck",
            "compute-sanitizer initcheck", "bandwidth of the kernels", "bandwidth of Kokkos", "bandwidth of PyTorch",
            "loading into device memory", "a rank is killed"})

    def test_what_is_missing_is_named(self):
        reasons = {part.name: part.reason for part in parts.later_parts(self.kit({**GPU, "nccl": None, "torch": None}))}
        self.assertIn("libnccl was not found", reasons["unit_nccl"])
        self.assertIn("PYTHON names one", reasons["loading into device memory"])
        self.assertEqual(reasons["kernels against the reference"], "")

    def test_on_a_gpu_the_real_libraries_take_the_place_of_the_double_and_tests_of_the_double_are_left_out(self):
        part = next(part for part in parts.later_parts(self.kit()) if part.name == "unit_cuda")
        self.assertEqual(part.command[1:], ["~[double]"])
        self.assertTrue(part.environment["LD_LIBRARY_PATH"].startswith(str(self.work / "lib" / "real")))
        self.assertEqual(part.environment["SHARDMESH_CUDART"], GPU["cudart"])
        double = next(part for part in parts.later_parts(self.kit(double=True)) if part.name == "unit_cuda")
        self.assertEqual(double.command[1:], [])
        self.assertNotIn("real", double.environment["LD_LIBRARY_PATH"])
        self.assertFalse({"SHARDMESH_TEST_ON_GPU", "SHARDMESH_CUDART"} & double.environment.keys())


class Whole(Case):
    def replace(self, *made):
        before = parts.compile_part, parts.later_parts
        self.addCleanup(lambda: (setattr(parts, "compile_part", before[0]), setattr(parts, "later_parts", before[1])))
        parts.compile_part, parts.later_parts = (lambda kit: made[0]), (lambda kit: made[1:])

    def run_all(self, seconds, *made, **modes):
        self.replace(*made)
        kit = self.kit(**modes)
        (self.work / "logs").mkdir()
        said = []
        outcomes = main.run_all(kit, seconds, said.append)
        return outcomes, said, report.write(self.work, kit.machine, outcomes, 1.0, ["a note"])

    def test_the_report_has_every_part_and_what_was_cut_off_is_named(self):
        slow = shell("sleep 30", seconds=1)
        slow.name = "a slow part"
        late = shell("exit 0")
        late.name = "a late part"
        outcomes, said, text = self.run_all(main.REPORT_SECONDS + 1.5, shell("exit 0"), slow, late)
        self.assertEqual([outcome.verdict for outcome in outcomes], ["passed", "cut off", "cut off"])
        self.assertIn("Cut off by their time limits: a slow part, a late part.", text)
        self.assertEqual(len(said), 3)
        document = json.loads((self.work / "report.json").read_text())
        self.assertEqual([part["name"] for part in document["parts"]], ["a part", "a slow part", "a late part"])
        self.assertEqual((self.work / "report.md").read_text(), text)

    def test_the_first_refusal_of_nccl_spares_later_parts(self):
        refused = shell("echo 'Duplicate GPU detected'; exit 1", shares_gpu=True)
        outcomes, _, _ = self.run_all(60, refused, shell("exit 5", shares_gpu=True), shell("exit 0"))
        self.assertEqual([outcome.verdict for outcome in outcomes], ["skipped", "skipped", "passed"])
        self.assertEqual(outcomes[0].text, outcomes[1].text)

    def test_with_the_double_a_suite_that_skips_itself_is_wrong(self):
        outcomes, _, _ = self.run_all(60, shell("exit 0", reason="compiles nothing"), shell("exit 77"), double=True)
        self.assertEqual([outcome.verdict for outcome in outcomes], ["skipped", "FAILED"])

    def test_the_status_tells_wrong_from_cut_off_and_from_no_gpu(self):
        def status(*verdicts, has_gpu=True):
            return report.status([running.Outcome("a", "Suites", verdict) for verdict in verdicts], has_gpu)
        self.assertEqual(status("passed", "skipped"), 0)
        self.assertEqual(status("passed", "cut off"), 2)
        self.assertEqual(status("cut off", "FAILED"), 1)
        self.assertEqual(status("skipped", has_gpu=False), 77)
        self.assertEqual(status("FAILED", has_gpu=False), 1)


class Making(Case):
    def test_libraries_of_glibc_are_those_of_the_machine(self):
        for name in ("libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "linux-vdso.so.1", "libpthread.so.0"):
            self.assertTrue(make.OF_SYSTEM.match(name), name)
        for name in ("libcrypto.so.3", "libfmt.so.9", "libstdc++.so.6", "libre2.so.9", "libmagic.so.1"):
            self.assertFalse(make.OF_SYSTEM.match(name), name)

    def test_the_version_of_glibc_that_a_program_needs_is_read(self):
        self.assertGreaterEqual(make.needed_glibc("/bin/sh"), (2, 2))
        before = make.run
        self.addCleanup(setattr, make, "run", before)
        text = " 0x10: Name: GLIBC_2.4  Flags: none\n 0x20: Name: GLIBC_2.38  Flags: none\n 0x30: Name: GLIBCXX_3.4  Flags"
        make.run = lambda *_, **__: SimpleNamespace(stdout=text)
        self.assertEqual(make.needed_glibc("a program"), (2, 38))
        make.run = lambda *_, **__: SimpleNamespace(stdout="")
        self.assertEqual(make.needed_glibc("a static program"), (0, 0))

    def test_the_sources_are_those_that_the_kernels_include(self):
        root = Path(__file__).resolve().parents[3]
        make.add_sources(self.work, root)
        for name in ("source/cuda_kernels/cuda_kernels.cu", "source/include/shardmesh/kernels/launch.cuh",
                     "source/tests/gpu/bandwidth.cu", "source/tests/support/reference_elements.hpp", "run.sh", "kit/main.py"):
            self.assertTrue((self.work / name).exists(), name)
        self.assertGreater(len(list((self.work / "data" / "golden").iterdir())), 10)


if __name__ == "__main__":
    unittest.main()
