# SPDX-License-Identifier: Apache-2.0
"""Checkpoints on other servers than those of remote_http and remote_s3, each on a free port: nginx with its listings,
and with --all radosgw, which checks signatures strictly, and moto, whose identities have rights. moto is installed into
an environment of its own, which needs a package registry. A server that cannot be had is named with the reason."""
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import types
import urllib.request
from pathlib import Path

import remote_http
import remote_s3
import rgw_server
import s3_server
from common import Oracle, skip
from remote_s3 import BUCKET, environment

CONVERTED = 4  # cases that are also converted
PATHS = ("a//b", "a/./b", "a/../b", "/a", "./a", "a/", "a\\b")  # parts of keys, which SeaweedFS takes for paths
MOTO = ["moto[s3]==5.2.5", "flask", "flask-cors"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running(command, port, log):
    """A server that accepts connections, until the end of the block."""
    with open(log, "wb") as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if process.poll() is not None:
                    raise RuntimeError(f"{command[0]} did not start: {Path(log).read_text(errors='replace')[-2000:]}") from None
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def nginx_program():
    return shutil.which("nginx") or next((one for one in ("/usr/sbin/nginx",) if os.access(one, os.X_OK)), None)


def serve_by_nginx(folder, root):
    """The settings of a server that lists folders as JSON."""
    folder.mkdir()
    port = free_port()
    temporary = "".join(f'{kind}_temp_path "{folder}/{kind}"; ' for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f'{"user root;" if os.getuid() == 0 else ""} worker_processes 1; daemon off; pid "{folder}/pid";\n'
        f'error_log "{folder}/errors"; events {{ worker_connections 256; }}\n'
        f'http {{ access_log off; types {{ }} default_type application/octet-stream; {temporary}\n'
        f'  server {{ listen 127.0.0.1:{port}; root "{root}"; autoindex on; autoindex_format json; }} }}\n')
    command = [nginx_program(), "-c", folder / "nginx.conf", "-e", folder / "errors", "-p", folder]
    return running(list(map(str, command)), port, folder / "log")


def check_nginx(oracle, cases):
    """URLs give the results of the folders. Names with special characters are those of the files, or errors."""
    root = oracle.work / "www"
    root.mkdir()
    (root / "golden").symlink_to(oracle.golden)
    file = next(next(case.checkpoint for case in cases if case.name.startswith("hf_")).glob("*.safetensors"))
    odd = root / "odd"
    for folder, name in (("spaces", "a b+c#d\u00fc;e=f&g.safetensors"), ("encoded", "model%41.safetensors"),
                         ("query", "a.safetensors?x=1.safetensors")):
        (odd / folder).mkdir(parents=True)
        shutil.copy(file, odd / folder / name)
    for decoy in (odd / "encoded" / "modelA.safetensors", odd / "query" / "a.safetensors"):
        shutil.copy(file, decoy)
    with serve_by_nginx(oracle.work / "nginx", root) as url:
        for number, case in enumerate(cases if oracle.args.all else cases[::3]):
            at = f"{url}/golden/{case.name}/checkpoint"
            remote_http.compare(oracle, f"{case.name} by nginx", case.checkpoint, at)
            if number < CONVERTED:
                remote_http.convert(oracle, f"{case.name} by nginx", case.checkpoint, at)
        oracle.succeeds("spaces", "diff", f"{url}/odd/spaces", file)
        oracle.succeeds("encoded", "diff", f"{url}/odd/encoded/model%2541.safetensors", file)
        oracle.succeeds("query", "diff", f"{url}/odd/query/a.safetensors%3Fx=1.safetensors", file)
        for folder, name in (("encoded", "model%41.safetensors"), ("query", "a.safetensors?x=1.safetensors")):
            status, _, said = oracle.run("inspect", f"{url}/odd/{folder}")
            oracle.check(status == 1 and "reads as something else in a URL" in said and name in said, folder, f"{status} {said}")


def install(folder, packages):
    """Python of an environment with these packages; None if they cannot be installed."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    done = subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", *packages], capture_output=True, text=True)
    if done.returncode == 0:
        return folder / "bin/python"
    print(f"{packages[0]} is not tried, because it cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    return None


#: Makes a user with all rights, one without any, and a role.
IDENTITIES = """
import boto3, json, sys
iam = boto3.client("iam", endpoint_url=sys.argv[1], region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
every = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
made = {}
for name in ("all", "none"):
    iam.create_user(UserName=name)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    made[name] = [key["AccessKeyId"], key["SecretAccessKey"]]
iam.put_user_policy(UserName="all", PolicyName="every", PolicyDocument=every)
trust = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}]})
made["role"] = iam.create_role(RoleName="reader", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
iam.put_role_policy(RoleName="reader", PolicyName="every", PolicyDocument=every)
print(json.dumps(made))
"""


def check_identities(oracle, python, endpoint, url):
    """Keys, and roles by keys and by a web identity, have their rights. Errors name the credentials, and no secret."""
    done = subprocess.run([python, "-c", IDENTITIES, endpoint], capture_output=True, text=True, check=True)
    made = json.loads(done.stdout)
    key, secret = made["all"]
    config, token = oracle.work / "config", oracle.work / "token"
    config.write_text(f"[profile keys]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n"
                      f"[profile reader]\nrole_arn = {made['role']}\nsource_profile = keys\n")
    token.write_text("a.web.token")
    base = {**environment(endpoint, "", ""), "AWS_ENDPOINT_URL_STS": endpoint}
    # With its checks of rights, moto fails at requests without a signature, which those for a web identity are.
    oracle.succeeds("web identity", "inspect", url,
                    env={**base, "AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_ROLE_ARN": made["role"]})
    checks = urllib.request.Request(endpoint + "/moto-api/reset-auth", b"0", {"Content-Type": "text/plain"})
    urllib.request.urlopen(checks).close()
    oracle.succeeds("keys", "inspect", url, env=environment(endpoint, key, secret))
    oracle.succeeds("role", "inspect", url, env={**base, "AWS_CONFIG_FILE": str(config), "AWS_PROFILE": "reader"})
    for name, env in (("wrong secret", environment(endpoint, key, "SKWRONGSECRET")),
                      ("unknown key", environment(endpoint, "AKUNKNOWN", secret)),
                      ("no rights", environment(endpoint, *made["none"]))):
        status, out, said = oracle.run("inspect", url, env=env)
        oracle.check(status in (1, 2, 3) and not out and url in said and "refuses" in said and "environment" in said and
                     not any(text in said for text in ("SKWRONGSECRET", secret, made["none"][1])), name, f"{status} {said}")


def odd_folders(oracle, at, client, source):
    """Keys of a folder are spelled as its URL, and a URL at which no reader finds the folder is refused."""
    env = environment(at.endpoint)
    for folder in ("odd//run/./x", "odd/..", "odd#x", "odd%64"):
        url = f"s3://{BUCKET}/{folder}"
        oracle.succeeds(folder, "convert", source, url, "--to", "dcp", env=env)
        found = client.keys(BUCKET, "odd")
        oracle.check(f"{folder}/.metadata" in found and all(key.startswith(folder + "/") for key in found), folder, f"{found}")
        oracle.succeeds(folder, "diff", url, source, env=env)
        for key in found:
            client.delete(BUCKET, key)
    for folder in ("odd?x", "odd//"):
        status, _, said = oracle.run("convert", source, f"s3://{BUCKET}/{folder}", "--to", "dcp", env=env)
        oracle.check(status in (1, 2) and not client.keys(BUCKET, "odd"), folder, f"{status} {said}")


def check_buckets(oracle, at, cases, uploads_are_old=False):
    """What remote_s3 tests on its server, as far as other servers can be asked for it."""
    client = s3_server.Client(at.port)
    oracle.check(client.request("PUT", f"/{BUCKET}")[0] == 200, "bucket", f"{at.endpoint}: the bucket cannot be made")
    small = next(next(case.checkpoint for case in cases if case.name.startswith("hf_")).glob("*.safetensors"))
    remote_s3.read(oracle, at, client, cases)
    remote_s3.write(oracle, at, client, cases[:CONVERTED])
    remote_s3.parts(oracle, at, client, remote_s3.large_file(oracle))
    remote_s3.objects_beside(oracle, at, client, small)
    remote_s3.keys(oracle, at, client, small, PATHS)
    odd_folders(oracle, at, client, cases[0].checkpoint)
    remote_s3.leftovers(oracle, at, client, small, uploads_are_old)
    remote_s3.interrupts(oracle, at, client, cases[0].checkpoint, range(1, 14))


def check_radosgw(oracle, cases):
    if missing := rgw_server.missing_programs():
        print(f"radosgw is not tried: there is no program {missing[0]} (Debian: radosgw ceph-osd ceph-mon ceph-common)")
        return
    with rgw_server.Radosgw(oracle.work / "radosgw") as at:
        check_buckets(oracle, at, cases)
        remote_s3.errors(oracle, at, oracle.work / "large.safetensors")
    for made in oracle.work.glob("local_*"):  # of `write`, which makes them again
        shutil.rmtree(made) if made.is_dir() else made.unlink()
    (oracle.work / "copy.safetensors").unlink(missing_ok=True)


def check_moto(oracle, cases):
    python = install(oracle.work / "moto", MOTO)
    if python is None:
        return
    port = free_port()
    server = [str(python.with_name("moto_server")), "-H", "127.0.0.1", "-p", str(port)]
    with running(server, port, oracle.work / "moto.log") as endpoint:
        at = types.SimpleNamespace(port=port, endpoint=endpoint)
        check_buckets(oracle, at, cases, uploads_are_old=True)  # all begin in 2010
        check_identities(oracle, python, endpoint, f"s3://{BUCKET}/golden/{cases[0].name}")


def main():
    def more(parser):
        parser.add_argument("--all", action="store_true", help="also servers that are installed from a registry")

    oracle = Oracle(__doc__, more)
    if not remote_http.is_served(oracle):
        skip("the command line was built without the room remote (libcurl 7.88 and pugixml)")
    cases = [case for case in oracle.cases() if case.checkpoint.is_dir() and not case.unreadable]
    if nginx_program():
        check_nginx(oracle, cases)
    elif oracle.args.all:
        print("nginx is not tried: there is no program nginx")
    else:
        skip("there is no program nginx")
    if oracle.args.all:
        check_radosgw(oracle, cases)
        check_moto(oracle, cases)
    oracle.finish()


if __name__ == "__main__":
    main()
