# SPDX-License-Identifier: Apache-2.0
"""The file of a delta as docs/rooms/delta.md describes it, read and written in Python. Needs the libraries xxHash and
zstd of the system, but no package of Python."""
import ctypes
import ctypes.util
import struct

MAGIC = b"SHMDELTA"
HEADER_BYTES = 64
SAME, SPARSE, DENSE, WHOLE = range(4)
COMPRESSED = 4
ALONE, ON_BASE, ARCHIVE = range(3)
ITEM_BYTES = {"bool": 1, "uint8": 1, "int8": 1, "float8_e4m3fn": 1, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4,
              "float32": 4, "int64": 8, "float64": 8, "complex64": 8, "complex128": 16}


class Hash(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def libraries():
    """Loads xxHash and zstd; returns the names of those that are missing."""
    missing = []
    for name in ("xxhash", "zstd"):
        found = ctypes.util.find_library(name)
        if found is None:
            missing.append(name)
        else:
            globals()[name] = ctypes.CDLL(found)
    if not missing:
        xxhash.XXH3_128bits.restype = Hash  # noqa: F821
        xxhash.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]  # noqa: F821
        zstd.ZSTD_decompress.restype = ctypes.c_size_t  # noqa: F821
        zstd.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]  # noqa: F821
    return missing


def digest(data):
    found = xxhash.XXH3_128bits(bytes(data), len(data))  # noqa: F821
    return struct.pack("<QQ", found.low, found.high)


def decompressed(frame, size):
    out = ctypes.create_string_buffer(size)
    length = zstd.ZSTD_decompress(out, size, frame, len(frame))  # noqa: F821
    if length != size:
        raise ValueError(f"a frame holds {length} bytes, expected {size}")
    return out.raw


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        part = self.data[self.at:self.at + count]
        if len(part) != count:
            raise ValueError("the description ends early")
        self.at += count
        return part

    def number(self, code):
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def text(self):
        return self.take(self.number("I")).decode("utf-8", "surrogateescape")

    def extents(self):
        return [self.number("q") for _ in range(self.number("B"))]

    def path(self):
        steps = []
        for _ in range(self.number("I")):
            kind = self.number("B")
            steps.append(self.number("q") if kind in (0, 2) else (self.text(), self.text()) if kind == 3 else self.text())
        return steps


def blocks_of(shape, most):
    """[(offsets, sizes)] of the blocks of a tensor, in row-major order."""
    if 0 in shape:
        return []
    sizes, counts, inner = [1] * len(shape), list(shape), 1
    for d in reversed(range(len(shape))):
        pieces = -(-shape[d] // max(most // inner, 1))
        sizes[d] = -(-shape[d] // pieces)
        counts[d] = -(-shape[d] // sizes[d])
        if counts[d] > 1:
            break
        inner *= shape[d]
    made = [([], [])]
    for size, count, whole in zip(sizes, counts, shape):
        made = [(o + [i * size], s + [min(size, whole - i * size)]) for o, s in made for i in range(count)]
    return made


def product(sizes):
    made = 1
    for size in sizes:
        made *= size
    return made


def applied(coding, plain, base, item):
    """The elements of a block, from its decompressed bytes and those of the base."""
    out = bytearray(base)
    if coding == SPARSE:
        changed, gap_bytes = struct.unpack("<II", plain[:8])
        gaps, values = plain[8:8 + gap_bytes], plain[8 + gap_bytes:]
        if len(values) != changed * item:
            raise ValueError("a sparse block has another number of values")
        at = done = 0
        for gap in gaps:
            at += gap
            if gap == 255:
                continue
            for p in range(item):
                out[at * item + p] ^= values[p * changed + done]
            at, done = at + 1, done + 1
        if done != changed:
            raise ValueError("a sparse block has another number of distances")
        return bytes(out)
    count = len(plain) // item
    for i in range(count):
        for p in range(item):
            value = plain[p * count + i]
            out[i * item + p] = value if coding == WHOLE else out[i * item + p] ^ value
    return bytes(out)


def read(path, base):
    """({key: (dtype, shape, bytes)}, {key: archive of an object}) of a delta over `base`, {key: (dtype, shape, bytes)}. Compares
    every digest."""
    data = path.read_bytes()
    if data[:8] != MAGIC or digest(data[:48]) != data[48:64]:
        raise ValueError("the header is damaged")
    version, block_bytes, offset, length = struct.unpack("<IIqq", data[8:32])
    if version != 1 or offset + length != len(data) or digest(data[offset:]) != data[32:48]:
        raise ValueError("the description is damaged")
    reader, end = Reader(data[offset:]), HEADER_BYTES
    tensors, objects = {}, {}

    def stored(size, expected):
        nonlocal end
        part = data[end:end + size]
        if digest(part) != expected:
            raise ValueError("stored bytes are damaged")
        end += size
        return part

    for _ in range(reader.number("Q")):
        key = reader.text()
        reader.path()
        dtype, shape = reader.text(), reader.extents()
        reader.text()  # layout
        flags = reader.number("B")
        reader.number("i")  # memory format
        reader.text()  # foreign dtype
        if flags & 4:
            reader.extents()
        reader.text(), reader.text()  # opaque type and kind
        form = reader.number("B")
        if form == ARCHIVE:
            tensors[key] = (dtype, shape, stored(reader.number("q"), reader.take(16)))
            continue
        if form == ON_BASE and (base[key][0], base[key][1]) != (dtype, shape):
            raise ValueError(f"{key} is another tensor in the base")
        item, made = ITEM_BYTES[dtype], b""
        for _, sizes in blocks_of(shape, max(block_bytes // item, 1)):
            size, tag = product(sizes) * item, reader.number("B")
            before = bytes(size)
            if form == ON_BASE:
                before = base[key][2][len(made):len(made) + size]
                if digest(before) != reader.take(16):
                    raise ValueError(f"{key} has other elements in the base")
            if tag & 3 == SAME:
                made += before
                continue
            stored_bytes, plain_bytes, result = reader.number("I"), reader.number("I"), reader.take(16)
            plain = stored(stored_bytes, reader.take(16))
            if tag & COMPRESSED:
                plain = decompressed(plain, plain_bytes)
            block = applied(tag & 3, plain, before, item)
            if digest(block) != result:
                raise ValueError(f"{key} gets other elements than the delta promises")
            made += block
        tensors[key] = (dtype, shape, made)
    for _ in range(reader.number("Q")):
        key = reader.text()
        reader.path()
        objects[key] = stored(reader.number("q"), reader.take(16))
    for _ in range(reader.number("Q")):
        reader.text(), reader.text()
    if reader.at != length or end != offset:
        raise ValueError("the delta has bytes that nothing describes")
    return tensors, objects


def text(value):
    data = value.encode("utf-8", "surrogateescape")
    return struct.pack("<I", len(data)) + data


def extents(values):
    return struct.pack("<B", len(values)) + b"".join(struct.pack("<q", value) for value in values)


def write(path, tensors, block_bytes):
    """Writes a delta of `tensors`, {key: (dtype, shape, bytes, bytes of the base or None)}, without compression. Blocks that
    differ from the base are dense."""
    body, description = b"", struct.pack("<Q", len(tensors))
    for key, (dtype, shape, elements, base) in tensors.items():
        item = ITEM_BYTES[dtype]
        description += text(key) + struct.pack("<IB", 1, 1) + text(key) + text(dtype) + extents(shape) + text("torch.strided")
        description += struct.pack("<Bi", 0, 0) + text("") + text("") + text("") + struct.pack("<B", ALONE if base is None else ON_BASE)
        at = 0
        for _, sizes in blocks_of(shape, max(block_bytes // item, 1)):
            size = product(sizes) * item
            block, before = elements[at:at + size], None if base is None else base[at:at + size]
            at += size
            if before == block:
                description += struct.pack("<B", SAME) + digest(before)
                continue
            shown = block if before is None else bytes(a ^ b for a, b in zip(block, before))
            plain = bytes(shown[i * item + p] for p in range(item) for i in range(size // item))
            description += struct.pack("<B", WHOLE if before is None else DENSE) + (b"" if before is None else digest(before))
            description += struct.pack("<II", size, size) + digest(block) + digest(plain)
            body += plain
    description += struct.pack("<QQ", 0, 0)
    header = MAGIC + struct.pack("<IIqq", 1, block_bytes, HEADER_BYTES + len(body), len(description)) + digest(description)
    path.write_bytes(header + digest(header) + body + description)
