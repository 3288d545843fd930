# SPDX-License-Identifier: Apache-2.0
"""Our signatures against botocore's, for random requests: headers and signed URLs, with and without a session token. Keys
have spaces, "+", "%", "//", "/./", and characters of several bytes. Needs botocore."""
import datetime
import hashlib
import json
import random
import subprocess
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

from common import Oracle, skip, seed as common_seed

try:
    from botocore import auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials
except ImportError as missing:
    skip(str(missing))

PIECES = ["a", "Z", "9", "-", ".", "_", "~", " ", "+", "%", "%41", "/", "//", "/./", "/../", "=", "&", "?", "#", "ß",
          "ሴ", "😀", "'", "(", "*", "$", "@", ":", ",", ";", "\\", "\t"]
ROUNDS = 300


def fixed_time(when):
    """Makes botocore sign at `when`: newer versions ask a function of the module, older ones the class datetime."""
    if hasattr(auth, "get_current_datetime"):
        auth.get_current_datetime = lambda remove_tzinfo=True: when

    class Fixed(datetime.datetime):
        @classmethod
        def utcnow(cls):
            return when

        @classmethod
        def now(cls, tz=None):
            return when

    module = datetime
    auth.datetime = type("module", (), {"datetime": Fixed, "timedelta": module.timedelta}) \
        if hasattr(auth.datetime, "timedelta") else Fixed


def word(dice, most):
    return "".join(dice.choice(PIECES) for _ in range(dice.randrange(most)))


def random_request(dice, when):
    is_url = dice.random() < 0.3
    headers = [["Host", dice.choice(["bucket.s3.eu-west-1.amazonaws.com", "127.0.0.1:8333"])]]
    for number in range(dice.randrange(4)):
        value = "".join(dice.choice(["a", " ", "  ", "b,c", '"', "=", "é"]) for _ in range(dice.randrange(6))).strip()
        headers.append([f"X-Amz-Meta-{dice.choice('abc')}{number}", value])
    hashes = [hashlib.sha256(b"body").hexdigest(), "UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"]
    made = {"method": dice.choice(["GET", "PUT", "HEAD", "POST", "DELETE"]), "path": "/" + word(dice, 12),
            "query": [[word(dice, 4) or "k", word(dice, 4)] for _ in range(dice.randrange(4))],
            "headers": headers, "payload_hash": "UNSIGNED-PAYLOAD" if is_url else dice.choice(hashes),
            "region": dice.choice(["us-east-1", "auto"]), "service": "s3", "time": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "access_key": "AKIDEXAMPLE", "secret_key": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
            "session_token": dice.choice(["", "a+b/c=="])}
    if is_url:  # botocore drops repeated names of a signed URL
        made["query"] = [[name, value] for name, value in dict(made["query"]).items()]
        made |= {"seconds": dice.randrange(1, 604800), "scheme": "https"}
    return made


def expected(request):
    """botocore's Authorization header, or the parameters of its signed URL."""
    host = request["headers"][0][1]
    query = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in request["query"])
    url = f"https://{host}{quote(request['path'], safe='/-_.~')}" + (f"?{query}" if query else "")
    headers = {name: value for name, value in request["headers"]}
    signed = AWSRequest(method=request["method"], url=url, headers=headers)
    keys = Credentials(request["access_key"], request["secret_key"], request["session_token"] or None)
    if "seconds" in request:
        auth.S3SigV4QueryAuth(keys, request["service"], request["region"], expires=request["seconds"]).add_auth(signed)
        return sorted(parse_qsl(urlsplit(signed.url).query, keep_blank_values=True))

    class Signer(auth.S3SigV4Auth):
        def payload(self, request_):
            return request["payload_hash"]

    Signer(keys, request["service"], request["region"]).add_auth(signed)
    return signed.headers["Authorization"]


def main():
    oracle = Oracle(__doc__, lambda parser: parser.add_argument("--sign", type=Path, required=True,
                                                                help="sign_requests"))
    seed = common_seed()
    dice = random.Random(seed)
    when = datetime.datetime(2026, 11, 24, 10, 0, 0)
    fixed_time(when)
    requests = [random_request(dice, when) for _ in range(ROUNDS)]
    done = subprocess.run([oracle.args.sign], input="".join(json.dumps(one) + "\n" for one in requests),
                          capture_output=True, text=True, timeout=120)
    oracle.check(done.returncode == 0, "sign_requests", f"exits {done.returncode}: {done.stderr.strip()}")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    oracle.check(len(answers) == ROUNDS, "sign_requests", f"{len(answers)} answers to {ROUNDS} requests")
    for number, (request, answer) in enumerate(zip(requests, answers)):
        found = (sorted(parse_qsl(urlsplit(answer).query, keep_blank_values=True)) if "seconds" in request
                 else answer["authorization"])
        wanted = expected(request)
        oracle.check(found == wanted, f"request {number}", f"{json.dumps(request)}: expected {wanted}, found {found}")
    oracle.finish()


if __name__ == "__main__":
    main()
