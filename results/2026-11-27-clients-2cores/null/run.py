# Processor time of clients beside a store that takes little: COUNT objects of BYTES both ways, in turn, ROUNDS times.
# Usage: python3 run.py THALWEG FAKE-S3 TREE.PY EMPTY-DIRECTORY COUNT BYTES ROUNDS >times.csv
# FAKE-S3 is `cargo build --release -p fakes --example s3`; TREE.PY is what `bench compare --store s3` writes for boto3-crt.
import os, resource, subprocess, sys, time, shutil
thalweg, fake, tree, w = sys.argv[1:5]
count, size, rounds = map(int, sys.argv[5:8])
os.makedirs(w + "/home"), os.makedirs(w + "/src")
large = size > 1 << 24
for n in range(count):
    path = f"{w}/src/f{n:07}"
    with open(path, "wb") as f:
        left = size
        while left:
            left -= f.write(os.urandom(min(left, 1 << 20)))
env = dict(os.environ, HOME=w + "/home", XDG_STATE_HOME=w + "/state", XDG_CONFIG_HOME=w, THALWEG_CONFIG=w + "/config.toml",
           AWS_ACCESS_KEY_ID="fake", AWS_SECRET_ACCESS_KEY="fake-secret-0123456789", AWS_EC2_METADATA_DISABLED="true", AWS_REGION="us-east-1")
server = subprocess.Popen([fake, str(count), str(count), "0", "0", str(size)], stdout=subprocess.PIPE, text=True)
url = server.stdout.readline().strip()
env["S3_ENDPOINT_URL"] = url
open(w + "/config.toml", "w").write(f'[stores.null]\nkind = "s3"\nendpoint = "{url}"\nregion = "us-east-1"\n')
s5 = ["s5cmd", "--log", "error"] + (["cp", "--concurrency", "16", "--part-size", "16"] if large else ["--numworkers", "256", "cp"])
def commands(r):
    return {
        "thalweg": ([thalweg, "cp", "--json", w + "/src/", f"s3+null://bkt/t{r}/"], [thalweg, "cp", "--json", "s3+null://bkt/a/", w + "/d/"]),
        "s5cmd": (s5 + [w + "/src/", f"s3://bkt/s{r}/"], s5 + ["s3://bkt/a/*", w + "/d/"]),
        "boto3-crt": (["python3", tree, "put", url, w + "/src", f"b{r}"], ["python3", tree, "get", url, "a", w + "/d"]),
    }
ticks = os.sysconf("SC_CLK_TCK")
def of_server():
    f = open(f"/proc/{server.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(f[11]) + int(f[12])) / ticks
print("round,way,tool,seconds,client_user_seconds,client_system_seconds,client_peak_MiB,server_seconds,exit", flush=True)
try:
    for r in range(-1, rounds):
        tools = list(commands(r).items())
        tools = tools[r % 3:] + tools[:r % 3]
        for way in (0, 1):
            for name, pair in tools:
                shutil.rmtree(w + "/d", ignore_errors=True), shutil.rmtree(w + "/state", ignore_errors=True)
                os.makedirs(w + "/d")
                s0, begun = of_server(), time.monotonic()
                child = subprocess.Popen(pair[way], env=env, stdout=subprocess.DEVNULL)
                _, status, usage = os.wait4(child.pid, 0)
                took = time.monotonic() - begun
                if way == 1:
                    got = sum(len(files) for _, _, files in os.walk(w + "/d"))
                    assert got == count, (name, got)
                if r >= 0:
                    print(f"{r},{'there back'.split()[way]},{name},{took:.3f},{usage.ru_utime:.3f},{usage.ru_stime:.3f},{usage.ru_maxrss/1024:.0f},{of_server()-s0:.2f},{os.waitstatus_to_exitcode(status)}", flush=True)
finally:
    server.kill()
    shutil.rmtree(w, ignore_errors=True)
