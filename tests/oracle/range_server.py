# SPDX-License-Identifier: Apache-2.0
"""A web server for a folder, on a free port of the loopback interface. It answers ranges, sends listings as nginx does
in JSON, plays the Hugging Face hub, and has faults on request. Needs no package."""
import hashlib
import http.server
import itertools
import json
import os
import socket
import ssl
import struct
import threading
import urllib.parse
from pathlib import Path

# Requests to this machine must not go to a proxy of the environment.
os.environ["no_proxy"] = "127.0.0.1,localhost"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Server:
    """Serves `root`. `faults` is an iterator of faults, one for each request: "", "reset", "503", "short", or "range".
    `certificate` is the files of a certificate and its key: then the server speaks TLS."""

    def __init__(self, root, listings=True, faults=(), token=None, certificate=None):
        self.root, self.listings, self.token = Path(root), listings, token
        self.faults, self.lock, self.seen, self.bytes_sent = iter(faults), threading.Lock(), [], 0
        owner = self

        class Handler(_Handler):
            server_of = owner

        self.http = _Quiet(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            # The handshake belongs to the thread of the connection.
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.http.server_address[1]}"
        self.storage = self.url.replace("127.0.0.1", "localhost")  # where the hub's large files are
        # The server looks this often whether it ends; by default, each test would wait for half a second.
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()

    def next_fault(self):
        with self.lock:
            return next(self.faults, "")


class _Quiet(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        """Clients that refuse a certificate, or go away, are no errors of the server."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise a body waits 40 ms for the acknowledgement of its headers
    server_of = None

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        server = self.server_of
        path = urllib.parse.unquote(self.path.partition("?")[0])
        with server.lock:
            server.seen.append((self.command, self.path, dict(self.headers)))
        if path.startswith("/api/models/"):
            return self.answer_hub(path.split("/")[3:])
        parts = path.split("/")
        if "resolve" in parts[2:4]:
            return self.redirect_to_blob(parts)
        if path.startswith("/blobs/"):
            if "Authorization" in self.headers:
                return self.send(400, b"the token was sent to another host")
            path = path[len("/blobs"):]
        file = server.root / path.strip("/")
        if ".." in parts:
            return self.send(400, b"")
        if file.is_dir():
            return self.answer_folder(path, file)
        if not file.is_file():
            return self.send(404, b"not found")
        return self.answer_file(file, server.next_fault() if self.command == "GET" else "")

    def answer_folder(self, path, folder):
        if not self.server_of.listings:
            return self.send(404, b"not found")
        if not path.endswith("/"):
            return self.send(301, b"", Location=urllib.parse.quote(path) + "/")
        entries = [{"name": one.name, "type": "directory", "mtime": ""} if one.is_dir() else
                   {"name": one.name, "type": "file", "mtime": "", "size": one.stat().st_size}
                   for one in folder.iterdir() if not one.name.startswith(".")]  # nginx lists no hidden names
        return self.send(200, json.dumps(entries).encode(), Content_Type="application/json")

    def answer_file(self, file, fault):
        data = file.read_bytes()
        headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()[:16]}"', "Accept_Ranges": "bytes"}
        status, asked = 200, self.headers.get("Range")
        if fault == "503":
            return self.send(503, b"", Retry_After="0")
        if asked:
            first, last = map(int, asked.removeprefix("bytes=").split("-"))
            if last >= len(data):
                return self.send(416, b"")
            shift = 1 if fault == "range" else 0
            headers["Content_Range"] = f"bytes {first + shift}-{last}/{len(data)}"
            status, data = 206, data[first:last + 1]
        if fault in ("reset", "short"):
            self.begin(status, len(data), headers)
            self.wfile.write(data[:len(data) // 2])
            if fault == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            return None
        return self.send(status, data, **headers)

    def answer_hub(self, parts):
        """Answers for repositories "owner/name", which are folders of the root."""
        server = self.server_of
        if server.token and self.headers.get("Authorization") != f"Bearer {server.token}":
            return self.send(401, b"", X_Error_Code="RepoNotFound")
        owner, name, what, revision, *inner = parts
        if what == "revision":
            known = revision in ("main", COMMIT)
            return self.send(200, json.dumps({"sha": COMMIT}).encode()) if known else \
                self.send(404, b"", X_Error_Code="RevisionNotFound")
        repository = server.root / owner / name
        folder = repository.joinpath(*inner)
        if not folder.is_dir():
            return self.send(404, b"", X_Error_Code="EntryNotFound")
        entries = []
        for one in sorted(folder.iterdir()):
            entry = {"type": "directory" if one.is_dir() else "file", "oid": "0" * 40, "size": 0,
                     "path": one.relative_to(repository).as_posix()}
            if one.is_file():
                entry["size"] = one.stat().st_size
                entry["lfs"] = {"oid": hashlib.sha256(one.read_bytes()).hexdigest(), "size": entry["size"]}
            entries.append(entry)
        return self.send(200, json.dumps(entries).encode())

    def redirect_to_blob(self, parts):
        _, owner, name, _, commit, *inner = parts
        file = self.server_of.root.joinpath(owner, name, *inner)
        if commit != COMMIT or not file.is_file():
            return self.send(404, b"", X_Error_Code="EntryNotFound")
        blob = urllib.parse.quote("/".join([owner, name, *inner]))
        location = f"{self.server_of.storage}/blobs/{blob}?Signature=secret"
        return self.send(302, b"", Location=location, X_Repo_Commit=COMMIT, X_Linked_Size=str(file.stat().st_size),
                         X_Linked_Etag=f'"{hashlib.sha256(file.read_bytes()).hexdigest()}"')

    def begin(self, status, length, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def send(self, status, data, **headers):
        self.begin(status, len(data), headers)
        if self.command != "HEAD":
            with self.server_of.lock:
                self.server_of.bytes_sent += len(data)
            self.wfile.write(data)


def now_and_then(dice, rate=0.2):
    """An endless schedule of faults that a client survives."""
    for _ in itertools.count():
        yield dice.choice(["reset", "503", "short", "range"]) if dice.random() < rate else ""
