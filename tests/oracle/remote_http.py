# SPDX-License-Identifier: Apache-2.0
"""Checkpoints under URLs give the results of local ones. Golden checkpoints are served over HTTP (with listings, without
them, and with faults) and as repositories of a hub. `inspect`, `verify`, `diff`, and `convert` of the URLs are compared
with those of the folders."""
import random
import shutil
import subprocess

from common import Oracle, rounds, skip
from range_server import Server, now_and_then

# The first cases are also converted. In the ordinary run, a third of the others is read from a hub.
CONVERTED = rounds(4, 12)
_local = {}  # the answers of commands on folders, by verb and folder


def without_place(text, *places):
    """The text of an answer, without the places of the checkpoint."""
    for place in places:
        text = text.replace(str(place), "CHECKPOINT")
    return text


def compare(oracle, case, local, url, env=None):
    """`inspect` and `verify` of both say the same."""
    for command in (["inspect", "--json"], ["verify"]):
        verb, *flags = command
        if (verb, local) not in _local:
            _local[verb, local] = oracle.run(verb, local, *flags)
        expected, found = _local[verb, local], oracle.run(verb, url, *flags, env=env)
        for name, one, other in zip(("status", "stdout", "stderr"), expected, found):
            one, other = without_place(str(one), local), without_place(str(other), url)
            oracle.check(one == other, case, f"{verb} of {url}: {name} is {other[:400]!r}, locally {one[:400]!r}")


def convert(oracle, case, local, url, env=None):
    """A copy made from the URL has the content of the folder."""
    copy = oracle.work / case.replace(" ", "_")
    if oracle.succeeds(case, "convert", url, copy, "--to", "dcp", env=env) is not None:
        oracle.succeeds(case, "diff", copy, local)
    oracle.succeeds(case, "diff", url, local, env=env)


def is_served(oracle):
    """Whether the tool opens URLs at all."""
    with Server(oracle.work) as server:
        _, _, said = oracle.run("inspect", server.url + "/none")
        return "no store knows the scheme" not in said


def check_secrets(oracle, checkpoint):
    """No command prints the query or the password of a URL, in text or in JSON."""
    folder = oracle.work / "signed"
    folder.mkdir()
    oracle.succeeds("signed", "convert", checkpoint, folder / "one.safetensors", "--skip-objects")
    meshes = ["--from-mesh", "2", "--from", "S(0)", "--to-mesh", "2", "--to", "R"]
    lines = [["inspect", "URL"], ["verify", "URL"], ["diff", "URL", "URL"],
             ["plan", "URL", *meshes], ["reshard", "URL", folder / "dry", "--mesh", "2", "--place", ".*=R", "--dry-run"],
             ["convert", "URL", "OUT", "--to", "dcp"], ["reshard", "URL", "OUT", "--mesh", "2", "--place", ".*=R"]]
    with Server(folder) as server:
        url = server.url.replace("http://", "http://user:password@") + "/one.safetensors?Signature=secret"
        for number, line in enumerate(lines):
            for more in ([], ["--json"]):
                words = [url if word == "URL" else folder / f"out{number}{len(more)}" if word == "OUT" else word for word in line]
                status, out, said = oracle.run(*words, *more)
                case = f"secrets of {' '.join(map(str, line[:2]))} {' '.join(more)}"
                oracle.check(status == 0, case, f"exits {status}: {said}")
                oracle.check("secret" not in out + said and "password" not in out + said, case, out + said)


def check_errors(oracle, root):
    """Errors name the URL without its query, and what to do."""
    with Server(root) as server:
        status, out, said = oracle.run("inspect", server.url + "/none.pt?Signature=secret")
        oracle.check(status != 0 and out == "" and "/none.pt" in said and "secret" not in said, "missing", said)
    status, _, said = oracle.run("inspect", "ftp://127.0.0.1/none")
    oracle.check(status != 0 and 'no store knows the scheme "ftp"' in said, "scheme", said)
    with Server(root) as server:
        env = {"HF_ENDPOINT": server.url, "HF_TOKEN": "token"}
        status, _, said = oracle.run("inspect", "hf://golden/none@v2", env=env)
        oracle.check(status != 0 and 'has no revision "v2"' in said and "token" not in said.replace("HF_TOKEN", ""),
                     "revision", said)


def certificate(oracle, name, host, begin, end):
    """The files of a certificate that signs itself, and of its key."""
    folder = oracle.work / "certificates" / name
    folder.mkdir(parents=True)
    (folder / "index.txt").touch()
    (folder / "serial").write_text("01\n")
    (folder / "settings").write_text("[ca]\ndefault_ca=own\n[own]\ndatabase=index.txt\nserial=serial\nnew_certs_dir=.\n"
                                     "default_md=sha256\npolicy=any\ncopy_extensions=copy\n[any]\ncommonName=supplied\n")
    for line in (["req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test", "-addext", f"subjectAltName={host}",
                  "-keyout", "key.pem", "-out", "request.pem"],
                 ["ca", "-batch", "-config", "settings", "-selfsign", "-keyfile", "key.pem", "-in", "request.pem", "-out",
                  "certificate.pem", "-startdate", begin, "-enddate", end]):
        subprocess.run(["openssl", *line], cwd=folder, check=True, capture_output=True)
    return folder / "certificate.pem", folder / "key.pem"


def check_certificates(oracle, path):
    """A good certificate is accepted. Unknown, expired, and other hosts' ones are refused, at the first attempt."""
    if not shutil.which("openssl"):
        print("certificates are not tried: there is no program openssl")
        return
    always = ("20200101000000Z", "20991231000000Z")
    good = certificate(oracle, "good", "IP:127.0.0.1", *always)
    for name, files, trusted in (
            ("good", good, good), ("unknown", good, None),
            ("expired", certificate(oracle, "expired", "IP:127.0.0.1", "20200101000000Z", "20200102000000Z"), ...),
            ("other host", certificate(oracle, "other", "DNS:example.org", *always), ...)):
        trusted = files if trusted is ... else trusted
        with Server(oracle.golden, certificate=files) as server:
            env = {"CURL_CA_BUNDLE": str(trusted[0])} if trusted else {}
            status, out, said = oracle.run("inspect", f"{server.url}/{path}", env=env)
            if name == "good":
                oracle.check(status == 0 and out, "certificates", f"a good certificate is refused: {said}")
            else:
                oracle.check(status != 0 and "name a file with its authority's in CURL_CA_BUNDLE" in said and not server.seen,
                             "certificates", f"{name}: {status} {said}")


def check_without_libcurl(oracle, local):
    """Local commands work on a machine without libcurl, and a URL is refused with the remedy."""
    hidden = oracle.work / "no_libcurl"
    hidden.mkdir()
    for name in ("libcurl.so.4", "libcurl-gnutls.so.4"):
        (hidden / name).write_bytes(b"")  # the loader finds these first
    env = {"LD_LIBRARY_PATH": str(hidden)}
    oracle.succeeds("without libcurl", "inspect", local, env=env)
    status, out, said = oracle.run("inspect", "https://127.0.0.1:1/x.safetensors", env=env)
    if "the request failed" in said:
        print("without libcurl: libcurl is static in this build")
        return
    oracle.check(status != 0 and out == "" and "URLs need libcurl" in said and "install libcurl" in said and
                 "https://127.0.0.1:1/x.safetensors" in said, "without libcurl", f"{status} {out}{said}")


def check_hub_stays_encrypted(oracle, path):
    """A hub with TLS that redirects to a host without is refused before that host sees a request."""
    if not shutil.which("openssl"):
        print("the hub's redirects are not tried: there is no program openssl")
        return
    files = certificate(oracle, "hub", "IP:127.0.0.1", "20200101000000Z", "20991231000000Z")
    with Server(oracle.golden) as plain, Server(oracle.golden, certificate=files) as hub:
        hub.storage = plain.url
        env = {"HF_ENDPOINT": hub.url, "CURL_CA_BUNDLE": str(files[0])}
        status, _, said = oracle.run("inspect", f"hf://{path}", env=env)
        oracle.check(status != 0 and "redirects a request from https to another protocol" in said and not plain.seen,
                     "redirects of the hub", f"{status} {said}")


def check_bytes(oracle, case, url, server, size):
    """`inspect` moves descriptions, and the first 64 KiB of files: of a golden checkpoint, at most three times its size."""
    before = server.bytes_sent
    oracle.succeeds(case, "inspect", url)
    moved = server.bytes_sent - before
    oracle.check(moved <= 3 * size + 8192, case, f"inspect moves {moved} bytes of a checkpoint of {size}")


def main():
    oracle = Oracle(__doc__)
    if not is_served(oracle):
        skip("the command line was built without the room remote (libcurl 7.88 or newer)")
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    check_errors(oracle, oracle.golden)
    cases = [case for case in oracle.cases() if case.checkpoint.is_dir() and not case.unreadable]
    check_secrets(oracle, cases[0].checkpoint)
    check_certificates(oracle, f"{cases[0].name}/checkpoint")
    check_without_libcurl(oracle, cases[0].checkpoint)
    check_hub_stays_encrypted(oracle, f"{cases[0].name}/checkpoint")
    for number, case in enumerate(cases):
        local, path = case.checkpoint, f"{case.name}/checkpoint"
        size = sum(file.stat().st_size for file in local.rglob("*") if file.is_file())
        with Server(oracle.golden) as server:
            compare(oracle, case.name, local, f"{server.url}/{path}")
            check_bytes(oracle, case.name, f"{server.url}/{path}", server, size)
            if number < CONVERTED:
                convert(oracle, f"{case.name} by url", local, f"{server.url}/{path}")
        if number < CONVERTED:
            with Server(oracle.golden, listings=False, faults=now_and_then(dice)) as server:
                convert(oracle, f"{case.name} with faults", local, f"{server.url}/{path}")
        if number >= CONVERTED and (number + seed) % rounds(3, 1):
            continue
        with Server(oracle.golden, token="token") as server:
            env = {"HF_ENDPOINT": server.url, "HF_TOKEN": "token"}
            compare(oracle, f"{case.name} of a hub", local, f"hf://{path}", env=env)
    oracle.finish()


if __name__ == "__main__":
    main()
