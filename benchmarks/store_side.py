# SPDX-License-Identifier: Apache-2.0
"""The clients of ./dev bench stores: one load from a store, timed N times in one process, as one line of JSON; and the
samples. Exits with 77 if a package is missing. Usage: store_side.py CASE PLACE [MIB] [--repeat N]"""
import argparse
import concurrent.futures
import json
import os
import sys
import time
import warnings

MISSING = 77
TENSORS, PART, CONNECTIONS = 32, 8 << 20, 16


def make(folder, mib):
    import torch
    import torch.distributed.checkpoint as dcp
    rows = mib * (1 << 20) // TENSORS // 4 // 1024
    dcp.save({f"layers.{i}.weight": torch.rand(rows, 1024) for i in range(TENSORS)}, checkpoint_id=f"{folder}/dcp", no_dist=True)


def shardmesh_case(place):
    import shardmesh
    import torch
    into = {key: torch.ones(entry.shape, dtype=getattr(torch, entry.dtype)) for key, entry in shardmesh.open(place).items()}

    def load():
        begin = time.perf_counter()
        with shardmesh.open(place).start_load(into) as loading:
            first = None
            for _ in loading:
                first = first or time.perf_counter() - begin
        return first
    return into, load


def dcp_case(reader):
    import torch
    import torch.distributed.checkpoint as dcp
    into = {key: torch.ones(entry.size, dtype=entry.properties.dtype)
            for key, entry in reader().read_metadata().state_dict_metadata.items()}
    return into, lambda: dcp.load(into, storage_reader=reader(), no_dist=True)


def fsspec_case(place):
    import s3fs  # noqa: F401
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader
    keys = {"key": os.environ["AWS_ACCESS_KEY_ID"], "secret": os.environ["AWS_SECRET_ACCESS_KEY"],
            "endpoint_url": os.environ["AWS_ENDPOINT_URL_S3"]}
    return dcp_case(lambda: FsspecReader(place, **keys))


def s3torchconnector_case(place):
    from s3torchconnector import S3ClientConfig
    from s3torchconnector._s3client import S3Client
    from s3torchconnector.dcp import S3StorageReader
    from s3torchconnector.dcp.s3_file_system import S3FileSystem
    region = os.environ["AWS_REGION"]

    def reader():
        made = S3StorageReader(region, place)
        made.fs = S3FileSystem(region, s3_client=S3Client(region, endpoint=os.environ["AWS_ENDPOINT_URL_S3"],
                                                          s3client_config=S3ClientConfig(force_path_style=True)))
        return made
    return dcp_case(reader)


def boto3_case(place):
    import boto3
    from botocore.config import Config
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"],
                          config=Config(max_pool_connections=CONNECTIONS, s3={"addressing_style": "path"}))
    bucket, _, key = place.removeprefix("s3://").partition("/")
    size = client.head_object(Bucket=bucket, Key=key)["ContentLength"]
    into = memoryview(bytearray(size))

    def fetch(first):
        part = into[first:first + PART]
        body, at = client.get_object(Bucket=bucket, Key=key, Range=f"bytes={first}-{first + len(part) - 1}")["Body"], 0
        while at < len(part):
            at += body.readinto(part[at:])

    def load():
        with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as threads:
            list(threads.map(fetch, range(0, size, PART)))
    return {"": into}, load


CASES = {"shardmesh": shardmesh_case, "fsspec": fsspec_case, "s3torchconnector": s3torchconnector_case, "boto3": boto3_case}


def main():
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=["make", *CASES])
    parser.add_argument("place")
    parser.add_argument("mib", type=int, nargs="?")
    parser.add_argument("--repeat", type=int, default=1)
    given = parser.parse_args()
    if given.case == "make":
        make(given.place, given.mib)
        return print("{}")
    try:
        into, load = CASES[given.case](given.place)
    except ImportError as missing:
        print(missing, file=sys.stderr)
        sys.exit(MISSING)
    seconds, firsts = [], []
    for _ in range(given.repeat):
        begin = time.perf_counter()
        firsts.append(load())
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"bytes": sum(value.nbytes for value in into.values()), "seconds": seconds, "first": firsts}))


if __name__ == "__main__":
    main()
