#!/usr/bin/env python3
# The end of copies over a laboratory, variants in turn; the first round is not counted.
# Usage (root): run.py SERVER SET RATE RTT ROUNDS NAME=BINARY[,--OPTION=VALUE...]... >runs.csv
import json, os, shutil, signal, subprocess, sys, tempfile, time
server, source, rate, rtt, rounds = sys.argv[1:6]
variants = [(name, rest.split(",")[0], rest.split(",")[1:]) for name, rest in (v.split("=", 1) for v in sys.argv[6:])]
w = tempfile.mkdtemp(prefix="tail", dir="/dev/shm")
env = dict(os.environ, HOME=w, XDG_CONFIG_HOME=w + "/c", XDG_STATE_HOME=w + "/s", XDG_RUNTIME_DIR=w)
lab = "tail-%d" % os.getpid()
def sh(*command):
    return subprocess.run(command, env=env, capture_output=True, text=True)
def at(site, *command):
    return (server, "lab", "exec", "--lab", lab, site, "--") + command
preset = ["direct"] if rate == "direct" else ["continent", "--set", f"wan.rtt={rtt}", "--set", f"wan.rate={rate}"]
up = sh(server, "lab", "up", "--name", lab, *preset)
assert up.returncode == 0, up.stderr
os.mkdir(w + "/dst")
serve = subprocess.Popen(at("b", server, "serve", "--listen", "[::]:7740", "--root", w + "/dst", "--state-dir", w + "/st",
                            "--ticket-file", w + "/t"), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    while not (os.path.exists(w + "/t") and os.path.getsize(w + "/t")):
        time.sleep(0.05)
    assert sh(*at("a", server, "endpoint", "add", "far", "--ticket-file", w + "/t")).returncode == 0
    print("round,variant,seconds,lone_lane_seconds,tail_seconds,first_byte_seconds,streams,retransmits,exit", flush=True)
    for number in range(int(rounds) + 1):
        turn = variants[number % len(variants):] + variants[:number % len(variants)]
        for name, binary, options in turn:
            begun = time.monotonic()
            run = sh(*at("a", binary, "cp", "--json", *options, source + "/", "far:x/"))
            took = time.monotonic() - begun
            told = json.loads(run.stdout.strip().splitlines()[-1])
            shutil.rmtree(w + "/dst/x", ignore_errors=True)
            if number:
                print(",".join(str(v) for v in (number, name, round(took, 3), told.get("lone_lane_seconds"), told.get("tail_seconds"),
                      told.get("first_byte_seconds"), told.get("streams"), told.get("retransmits"), run.returncode)), flush=True)
    print([line.strip() for line in sh(server, "lab", "status").stdout.splitlines() if "void" in line or "late" in line], file=sys.stderr)
finally:
    serve.send_signal(signal.SIGTERM)
    sh(server, "lab", "down", lab)
    shutil.rmtree(w, ignore_errors=True)
