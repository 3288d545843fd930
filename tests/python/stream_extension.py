# SPDX-License-Identifier: Apache-2.0
"""A stream extension of PyTorch's checkpoints, for tests."""
import io

from torch.distributed.checkpoint._extension import StreamTransformExtension


class Turned(StreamTransformExtension):
    """Complements every byte."""

    @staticmethod
    def registry_name():
        return "stream.turned"

    @staticmethod
    def from_descriptor(version):
        return Turned()

    def get_descriptor(self):
        return "stream.turned/1"

    def transform_to(self, output):
        class Writer(io.RawIOBase):
            def writable(self):
                return True

            def write(self, data):
                output.write(bytes(255 - one for one in bytes(data)))
                return len(data)

        return Writer()

    def transform_from(self, input):
        return io.BytesIO(bytes(255 - one for one in input.read()))
