# SPDX-License-Identifier: Apache-2.0
"""Run by s3_readers.py: reads s3://BUCKET/ours/NAME with PyTorch's readers of other packages, compares the state with
that of the local folder NAME, and writes it to s3://BUCKET/CLIENT/NAME. Prints a line for each client and name."""
import os
import sys
import traceback
import warnings
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict


def client_of(name):
    """(reader, writer): functions of a URL."""
    endpoint, region = os.environ["AWS_ENDPOINT_URL_S3"], os.environ["AWS_REGION"]
    if name == "fsspec":
        from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter
        keys = {"key": os.environ["AWS_ACCESS_KEY_ID"], "secret": os.environ["AWS_SECRET_ACCESS_KEY"], "endpoint_url": endpoint}
        return lambda url: FsspecReader(url, **keys), lambda url: FsspecWriter(url, **keys)
    from s3torchconnector import S3ClientConfig
    from s3torchconnector._s3client import S3Client
    from s3torchconnector.dcp import S3StorageReader, S3StorageWriter
    from s3torchconnector.dcp.s3_file_system import S3FileSystem

    def at_endpoint(made):
        # Their constructors take no endpoint.
        client = S3Client(region, endpoint=endpoint, s3client_config=S3ClientConfig(force_path_style=True))
        made.fs = S3FileSystem(region, s3_client=client)
        return made
    return (lambda url: at_endpoint(S3StorageReader(region, url)), lambda url: at_endpoint(S3StorageWriter(region, url)))


def whole(reader):
    state = {}
    _load_state_dict(state, storage_reader=reader, planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    return state


def are_equal(one, other):
    if type(one) is not type(other):
        return False
    if torch.is_tensor(one):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(
            one.contiguous().reshape(-1).view(torch.uint8), other.contiguous().reshape(-1).view(torch.uint8))
    if isinstance(one, dict):
        return list(one) == list(other) and all(are_equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(are_equal, one, other))
    return repr(one) == repr(other)


def main():
    warnings.simplefilter("ignore")
    local, bucket, *clients = sys.argv[1:]
    for client in clients:
        reader, writer = client_of(client)
        for folder in sorted(Path(local).iterdir()):
            try:
                expected, found = whole(dcp.FileSystemReader(folder)), whole(reader(f"s3://{bucket}/ours/{folder.name}"))
                said = "equal" if expected and are_equal(expected, found) else f"differs: {expected!r:.300} {found!r:.300}"
                dcp.save(expected, storage_writer=writer(f"s3://{bucket}/{client}/{folder.name}"), no_dist=True)
            except Exception:
                said = "fails: " + " | ".join(traceback.format_exc().strip().splitlines()[-4:])
            print(client, folder.name, said.replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
