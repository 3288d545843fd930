# SPDX-License-Identifier: Apache-2.0
"""A proxy on the loopback interface that stands between a client and an HTTP or S3 server, and disturbs requests by a
schedule. Needs no package."""
import dataclasses
import re
import socket
import struct
import threading
import time

# Faults that a repetition mends. The client may repeat the request, and must then have the right result.
MENDED = ("reset", "reset_upload", "lost", "lost_body", "cut", "cut_reset", "long", "range", "duplicate", "slow",
          "429", "429_after", "500", "502", "503", "503_after", "504", "error_in_200")
# The same, but the client needs seconds to notice them.
STALLS = ("stall", "stall_body", "drip")
# Wrong answers, which look like another object or another server. The client may end with an error.
WRONG = ("short", "total", "etag", "whole", "coded", "late_duplicate")
# A wrong bit of a body. Only a checksum shows it.
FLIP = "flip"
FAULTS = MENDED + STALLS + WRONG + (FLIP,)

REASONS = {429: "Too Many Requests", 500: "Internal Server Error", 502: "Bad Gateway", 503: "Slow Down",
           504: "Gateway Timeout"}
PATIENCE = 150  # seconds that a stalled connection stays open at most


@dataclasses.dataclass
class Exchange:
    """A request that reached the proxy. `sent` and `received` count the bytes of both bodies; `announced` is the
    Content-Length of the answer, which HEAD has without a body."""
    number: int
    line: str
    is_ranged: bool
    sent: int
    received: int = 0
    announced: int = 0
    fault: str = ""

    def is_disturbed_by(self, fault):
        """Whether a fault changes such an exchange."""
        if fault in ("range", "total", "whole"):
            return self.is_ranged
        if fault in ("lost_body", "cut", "cut_reset", "stall_body", FLIP):
            return self.received > 0
        if fault in ("short", "long"):
            return self.announced > 0
        if fault == "reset_upload":
            return self.sent > 1
        if fault == "error_in_200":
            return self.line.startswith("POST ") and "uploadId=" in self.line
        return True

    def is_mended_after(self, fault):
        """Whether a repetition mends a fault. A wrong length in an answer to HEAD is believed: it is the object's."""
        return fault in MENDED + STALLS and not (fault == "long" and self.line.startswith("HEAD "))


class Proxy:
    """Forwards connections to a server on `port`. `schedule` is called with each Exchange before it is forwarded, and
    returns the name of a fault, or an empty text. It may be replaced at any time."""

    def __init__(self, port, schedule=lambda exchange: ""):
        self.upstream, self.schedule, self.lock, self.seen = port, schedule, threading.Lock(), []
        self.is_closed, self.open = False, set()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.endpoint = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Closes all connections, also those that are stalled."""
        with self.lock:
            self.is_closed = True
            for one in self.open:
                _shut(one)
        _shut(self.listener)
        self.listener.close()

    def begin(self, schedule=lambda exchange: ""):
        """Forgets the exchanges so far, and continues with another schedule."""
        with self.lock:
            self.seen, self.schedule = [], schedule

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                if self.is_closed:
                    return near.close()
                self.open.add(near)
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near):
        far, reader = None, near.makefile("rb")
        try:
            while head := _head(reader):
                exchange, fault = self._note(head)
                body = reader.read(exchange.sent // 2 if fault == "reset_upload" else exchange.sent)
                if fault in ("reset", "reset_upload"):
                    return _reset(near)
                if fault == "stall":
                    return self._wait_for_end(near)
                if fault[:3].isdigit():
                    near.sendall(_refusal(fault, exchange))
                    continue
                if far is None:
                    far = socket.create_connection(("127.0.0.1", self.upstream))
                    far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    answers = far.makefile("rb")
                if fault == "whole":
                    head = re.sub(rb"(?im)^range:[^\n]*\n", b"", head)
                far.sendall(head + body)
                answer, content = _answer(answers, exchange.line)
                exchange.received, exchange.announced = len(content), _length(answer)
                if not self._send(near, fault, answer, content, exchange):
                    return None
        except (OSError, ValueError):
            return None  # the client or the server has gone
        finally:
            with self.lock:
                self.open.discard(near)
            reader.close()  # until then, the socket stays open
            near.close()
            if far is not None:
                far.close()

    def _note(self, head):
        line = head.split(b"\r\n", 1)[0].decode("latin-1")
        with self.lock:
            exchange = Exchange(len(self.seen) + 1, line, re.search(rb"(?im)^range:", head) is not None, _length(head))
            self.seen.append(exchange)
            exchange.fault = self.schedule(exchange)
        return exchange, exchange.fault

    def _send(self, near, fault, answer, content, exchange):
        """Sends an answer with a fault. Returns whether the connection goes on."""
        half = len(content) // 2
        if fault == "lost":
            return _reset(near)
        if fault in ("lost_body", "cut", "cut_reset", "stall_body"):
            near.sendall(answer + (b"" if fault == "lost_body" else content[:half]))
            if fault == "stall_body":
                return self._wait_for_end(near)
            return False if fault == "cut" else _reset(near)
        if fault == "drip":
            first, _, rest = (answer + content).partition(b"\r\n")
            near.sendall(first + b"\r\n")
            return self._drip(near, rest)
        if fault == "slow":
            time.sleep(1.2)
        if fault == "error_in_200" and exchange.is_disturbed_by(fault):
            content = b"<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content)
        answer, content = _changed(fault, answer, content)
        near.sendall((answer + content) * (2 if fault == "duplicate" else 1))
        if fault == "late_duplicate":
            time.sleep(0.003)
            near.sendall(answer + content)
        return fault != "long"

    def _drip(self, near, rest):
        for at in range(len(rest)):
            near.sendall(rest[at:at + 1])
            time.sleep(0.25)
        return True

    @staticmethod
    def _wait_for_end(near):
        near.settimeout(PATIENCE)
        while near.recv(1 << 16):
            pass
        return False


def _changed(fault, answer, content):
    if fault == "short":
        answer = _with_length(answer, lambda size: size // 2)
    if fault == "long":
        answer = _with_length(answer, lambda size: size + 7)
    if fault == "range":
        answer = re.sub(rb"(?im)^content-range: bytes (\d+)", lambda m: b"Content-Range: bytes %d" % (int(m[1]) + 7), answer)
    if fault == "total":
        answer = re.sub(rb"(?im)^(content-range: [^/]*)/(\d+)", lambda m: b"%s/%d" % (m[1], int(m[2]) + 1), answer)
    if fault == "etag":
        answer = re.sub(rb'(?im)^etag: "?', rb'ETag: "0', answer)
    if fault == "coded":
        answer = answer[:-2] + b"Content-Encoding: gzip\r\n\r\n"
    if fault == FLIP and content:
        content = content[:-1] + bytes([content[-1] ^ 1])
    return answer, content


def _with_length(answer, change):
    return re.sub(rb"(?im)^content-length: *(\d+)", lambda m: b"Content-Length: %d" % change(int(m[1])), answer)


def _refusal(fault, exchange):
    text = b"" if exchange.line.startswith("HEAD ") else b"<Error><Code>SlowDown</Code><Message>not now</Message></Error>"
    after = b"Retry-After: 1\r\n" if fault.endswith("_after") else b""
    status = int(fault[:3])
    return b"HTTP/1.1 %d %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, REASONS[status].encode(), after, len(text), text)


def _answer(reader, line):
    head = _head(reader)
    while head.startswith(b"HTTP/1.1 1"):
        head = _head(reader)
    if not head:
        raise ConnectionError("the server has closed the connection")
    has_body = not line.startswith("HEAD ") and head[9:12] not in (b"204", b"304")
    if has_body and re.search(rb"(?im)^transfer-encoding: *chunked", head):
        content = b""
        while size := int(reader.readline().split(b";")[0], 16):
            content += reader.read(size)
            reader.readline()
        reader.readline()
        head = re.sub(rb"(?im)^transfer-encoding:[^\n]*\n", b"Content-Length: %d\r\n" % len(content), head)
        return head, content
    return head, reader.read(_length(head)) if has_body else b""


def _head(reader):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = reader.readline()
        if not line:
            return b""
        head += line
    return head


def _length(head):
    found = re.search(rb"(?im)^content-length: *(\d+)", head)
    return int(found[1]) if found else 0


def _shut(one):
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # not connected


def _reset(near):
    """Ends a connection with RST instead of FIN. Returns False."""
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    near.close()
    return False
