# An unchanged sync of KEYS files of 8 bytes, tree to bucket and bucket to tree, beside `s5cmd sync --size-only`, in turn; the store is
# the tests' own. Usage: bash run.sh THALWEG FAKE-S3 EMPTY-DIRECTORY KEYS ROUNDS >times.csv
# FAKE-S3 is `cargo build --release -p fakes --example s3`. Needs GNU time.
set -e
thalweg=$1 fake=$2 w=$3 keys=$4 rounds=$5
export HOME=$w/home XDG_STATE_HOME=$w/state XDG_CONFIG_HOME=$w THALWEG_CONFIG=$w/config.toml
export AWS_ACCESS_KEY_ID=fake AWS_SECRET_ACCESS_KEY=fake-secret-0123456789 AWS_EC2_METADATA_DISABLED=true AWS_REGION=us-east-1
mkdir -p "$w/home" "$w/src"
"$fake" "$keys" 1000 0 >"$w/url" &
server=$!
trap 'kill $server' EXIT
until [ -s "$w/url" ]; do sleep 0.2; done
export S3_ENDPOINT_URL=$(cat "$w/url")
printf '[stores.m]\nkind = "s3"\nendpoint = "%s"\nregion = "us-east-1"\n' "$S3_ENDPOINT_URL" >"$w/config.toml"
# The tree that the bucket holds: its first copy, not measured.
begun=$(date +%s.%N)
"$thalweg" cp --json s3+m://bkt/a/ "$w/src/" >"$w/json"
echo "set up in $(echo "$(date +%s.%N) - $begun" | bc) s, $(find "$w/src" -type f | wc -l) files" >&2
echo round,way,tool,seconds,processor_seconds,peak_MiB,exit,copied
for round in $(seq 0 "$rounds"); do
  for way in there back; do
    for tool in thalweg s5cmd; do
      case $tool-$way in
        thalweg-there) set -- "$thalweg" sync --json "$w/src/" s3+m://bkt/a/ ;;
        thalweg-back) set -- "$thalweg" sync --json s3+m://bkt/a/ "$w/src/" ;;
        s5cmd-there) set -- s5cmd --log info --numworkers 256 sync --size-only "$w/src/" s3://bkt/a/ ;;
        s5cmd-back) set -- s5cmd --log info --numworkers 256 sync --size-only 's3://bkt/a/*' "$w/src/" ;;
      esac
      code=0
      /usr/bin/time -o "$w/time" -f '%e %U %S %M' "$@" >"$w/out" || code=$?
      read -r seconds user system peak < <(tail -n 1 "$w/time")
      case $tool in
        thalweg) copied=$(grep -o '"event":"done".*"files":{"ok":[0-9]*' "$w/out" | grep -o '[0-9]*$') ;;
        s5cmd) copied=$(grep -c '^cp ' "$w/out" || true) ;;
      esac
      # The first of each is not counted.
      [ "$round" = 0 ] && { cp "$w/out" "$w/first-$tool-$way"; tail -c 600 "$w/out" >&2; continue; }
      echo "$round,$way,$tool,$seconds,$(echo "$user + $system" | bc),$((peak / 1024)),$code,$copied"
    done
  done
done
