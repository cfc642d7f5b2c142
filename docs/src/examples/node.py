#!/usr/bin/env python3
"""The node side of a storage plugin on top of zcctl: an example.

It reads one request a line on its standard input, a JSON object with "call", and writes one answer a line. The calls,
and the codes of errors, are those of the Container Storage Interface (CSI); a driver puts gRPC in front of them. Every
call may be repeated: the second one changes nothing and answers as the first one did.

    node.py [--socket PATH] [--zcctl PROGRAM] [--attach]

With --attach volumes become block devices (ublk), otherwise clients get the URI of an NBD export.
"""

import argparse
import json
import subprocess
import sys
import threading
import urllib.parse

# Seconds that zcctl may take: dirty data may have to be written to the origin.
LIMIT = 600


class Failure(Exception):
    """What a call answers instead of a result: a code of CSI and a sentence."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code
        self.message = message


class Zcctl:
    """Runs zcctl, and reads the JSON that it prints."""

    def __init__(self, program, socket):
        self.program = program
        self.socket = socket

    def run(self, *arguments):
        """The exit status, and the answer or what zcctl said."""
        command = [self.program, *arguments, "--json", "--socket", self.socket]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        except subprocess.TimeoutExpired as slow:
            raise Failure("DEADLINE_EXCEEDED", f"zcctl did not end within {LIMIT} s") from slow
        if done.returncode not in (0, 1, 3) or not done.stdout.strip():
            return done.returncode, done.stderr.strip()
        return done.returncode, json.loads(done.stdout)

    def must(self, code, *arguments):
        """The answer of a command that has to succeed; `code` is for one that does not."""
        status, answer = self.run(*arguments)
        if status != 0:
            raise Failure(code, answer if isinstance(answer, str) else json.dumps(answer))
        return answer

    def status(self):
        """What the daemon says of itself. Its exit status is its verdict, and no failure of the command."""
        status, answer = self.run("status")
        if status == 2:
            raise Failure("UNAVAILABLE", answer)
        return answer

    def volume(self, name):
        """What the daemon says of a volume; None if it serves no such volume."""
        found = [volume for volume in self.status()["volumes"] if volume["name"] == name]
        return found[0] if found else None


class Node:
    """The calls. One runs at a time for a volume."""

    def __init__(self, zcctl, attaches):
        self.zcctl = zcctl
        self.attaches = attaches
        self.lock = threading.Lock()

    def stage(self, request):
        """NodeStageVolume: serves the volume, and says where clients find it."""
        name, origin = wanted(request, "volume_id"), wanted(request, "origin")
        known = self.zcctl.volume(name)
        if known and known["info"]["origin"] != origin:
            raise Failure("ALREADY_EXISTS", f"{name} has the origin {known['info']['origin']}")
        command = ["volume", "add", name, "--if-missing", "--origin", origin]
        if "mode" in request:
            command += ["--mode", request["mode"]]
        if "create_bytes" in request:
            command += ["--size", str(request["create_bytes"])]
        self.zcctl.must("INVALID_ARGUMENT", *command)
        if self.attaches:
            # Repeated, this names the device that there is.
            return {"device": self.zcctl.must("INTERNAL", "attach", name)["device"]}
        sockets = [place for place in self.zcctl.status()["listening"] if place.startswith("nbd+unix:")]
        if not sockets:
            raise Failure("FAILED_PRECONDITION", "the daemon has no Unix socket for NBD clients")
        return {"uri": sockets[0].replace(":///", f":///{urllib.parse.quote(name)}", 1)}

    def unstage(self, request):
        """NodeUnstageVolume: brings dirty data to the origin, and lets the volume go. The origin stays."""
        name = wanted(request, "volume_id")
        known = self.zcctl.volume(name)
        if known and known["info"]["device"]:
            self.zcctl.must("FAILED_PRECONDITION", "detach", name)
        # Refused while clients are connected.
        self.zcctl.must("FAILED_PRECONDITION", "volume", "remove", name, "--if-present")
        return {}

    def expand(self, request):
        """NodeExpandVolume: grows the volume to at least this size. The origin is a file here."""
        name, wanted_bytes = wanted(request, "volume_id"), wanted(request, "required_bytes")
        known = self.zcctl.volume(name)
        if not known:
            raise Failure("NOT_FOUND", f"there is no volume {name}")
        if known["info"]["size_bytes"] < wanted_bytes:
            self.zcctl.must("OUT_OF_RANGE", "resize", name, "--size", str(wanted_bytes))
        return {"capacity_bytes": self.zcctl.volume(name)["info"]["size_bytes"]}

    def stats(self, request):
        """NodeGetVolumeStats: size, what only the cache has, and whether the volume is well."""
        name = wanted(request, "volume_id")
        status = self.zcctl.status()
        found = [volume for volume in status["volumes"] if volume["name"] == name]
        if not found:
            raise Failure("NOT_FOUND", f"there is no volume {name}")
        reasons = [reason for reason in status["verdict"]["reasons"] if reason["volume"] == name]
        return {
            "total_bytes": found[0]["info"]["size_bytes"],
            "dirty_bytes": found[0]["dirty"]["bytes"],
            "abnormal": bool(reasons),
            "message": "; ".join(reason["what"] for reason in reasons),
        }

    def probe(self, _request):
        """Probe: whether the daemon answers and serves every volume."""
        return {"ready": self.zcctl.status()["verdict"]["state"] != "FAILED"}

    def answer(self, line):
        """The answer to one line."""
        calls = {
            "NodeStageVolume": self.stage,
            "NodeUnstageVolume": self.unstage,
            "NodeExpandVolume": self.expand,
            "NodeGetVolumeStats": self.stats,
            "Probe": self.probe,
        }
        try:
            request = json.loads(line)
            if not isinstance(request, dict) or request.get("call") not in calls:
                raise Failure("UNIMPLEMENTED", f"there are {', '.join(calls)}")
            with self.lock:
                return {"ok": True, **calls[request["call"]](request)}
        except json.JSONDecodeError as error:
            return {"ok": False, "code": "INVALID_ARGUMENT", "message": f"no JSON: {error}"}
        except Failure as failure:
            return {"ok": False, "code": failure.code, "message": failure.message}


def wanted(request, member):
    """A member that the call cannot do without."""
    if member not in request:
        raise Failure("INVALID_ARGUMENT", f"{member} is missing")
    return request[member]


def main():
    """Answers until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--socket", default="/run/zcached/control.sock")
    parser.add_argument("--zcctl", default="zcctl")
    parser.add_argument("--attach", action="store_true")
    options = parser.parse_args()
    node = Node(Zcctl(options.zcctl, options.socket), options.attach)
    for line in sys.stdin:
        print(json.dumps(node.answer(line)), flush=True)


if __name__ == "__main__":
    main()
