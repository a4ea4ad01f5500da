# A planned copy from beginning to end: 40 files of 16 MiB over 500 Mbit/s and 74 ms to storage on which each write takes 20 ms, then 2 ms.
# Usage (root): bash run.sh THALWEG EMPTY-DIRECTORY >transcript.txt; needs FUSE.
thalweg=$1 w=$2 lab=story-$$
export HOME=$w/home XDG_STATE_HOME=$w/state XDG_CONFIG_HOME=$w/config XDG_CACHE_HOME=$w/cache
mkdir -p "$w/home" "$w/src" "$w/backing" "$w/slow" "$w/far"
"$thalweg" gen 40x16MiB "$w/src" >&2
"$thalweg" lab up continent --name $lab --set wan.rate=500Mbit >&2
"$thalweg" lab storage --write-latency 20ms --rate 200MiB "$w/backing" "$w/slow" >"$w/mount.log" 2>&1 &
mount=$!
until mountpoint -q "$w/slow"; do sleep 0.2; done
"$thalweg" lab exec --lab $lab b -- env XDG_STATE_HOME="$w/far" "$thalweg" serve --listen '[::]:7740' --root "$w/slow" --ticket-file "$w/ticket" >"$w/serve.log" 2>&1 &
serve=$!
trap 'kill $serve $mount; "$thalweg" lab down $lab >&2' EXIT
until [ -s "$w/ticket" ]; do sleep 0.2; done
at_a() { "$thalweg" lab exec --lab $lab a -- "$@"; }
say() {
  echo
  echo "\$ thalweg $*"
  at_a "$thalweg" "$@" 2>&1 | sed "s#$w/##g; s#.*\r##"
}
cd "$w" || exit
at_a "$thalweg" endpoint add far --ticket-file "$w/ticket" >&2
timed() {
  begun=$(date +%s.%N)
  say "$@"
  echo "# $(echo "$(date +%s.%N) - $begun" | bc | cut -c1-5) s"
  rm -rf "$w/backing/"[a-z]*
}
timed cp src/ far:first/
timed calibrate far --source src
say plan src far:
say plan src far: --what-if write=x4 --what-if network=x4
say cp -n src/ far:planned/
timed cp --plan auto --explain src/ far:planned/
timed cp --plan auto src/ far:again/
say plan report
"$thalweg" lab status | grep -E "lateness|void" | sed 's/^/# /'
