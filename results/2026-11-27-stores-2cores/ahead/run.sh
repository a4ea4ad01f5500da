# 4 x 1 GiB from versitygw over loopback into memory, by two builds of ours and s5cmd in turn: seconds, processor seconds of client and
# server, context switches of the whole machine. Usage (root): bash run.sh OLD NEW EMPTY-DIRECTORY ROUNDS >times.csv; needs perf.
set -e
old=$1 new=$2 w=$3 rounds=$4
export HOME=$w/home XDG_STATE_HOME=$w/state XDG_CONFIG_HOME=$w THALWEG_CONFIG=$w/config.toml S3_ENDPOINT_URL=http://127.0.0.1:9911
export AWS_ACCESS_KEY_ID=race AWS_SECRET_ACCESS_KEY=race-secret AWS_EC2_METADATA_DISABLED=true AWS_REGION=us-east-1
mkdir -p "$w/home" "$w/store/delivered" "$w/src" "$w/d"
printf '[stores.race]\nkind = "s3"\nendpoint = "%s"\nallow_clear = true\n' $S3_ENDPOINT_URL >"$w/config.toml"
"$new" gen 4x1GiB "$w/src" >&2
versitygw --access race --secret race-secret --port 127.0.0.1:9911 --quiet --keep-alive posix "$w/store" >"$w/log" 2>&1 &
server=$!
trap 'kill $server' EXIT
sleep 1
"$new" cp "$w/src/" s3+race://delivered/x/ >&2
cpu() { awk '{print ($14+$15)/100}' /proc/$server/stat; }
echo round,tool,seconds,client_user_seconds,client_system_seconds,server_seconds,switches,exit
for round in $(seq 0 "$rounds"); do
  for tool in old new s5cmd; do
    rm -rf "$w/d"
    mkdir "$w/d"
    case $tool in
      old) set -- "$old" cp --json s3+race://delivered/x/ "$w/d/" ;;
      new) set -- "$new" cp --json s3+race://delivered/x/ "$w/d/" ;;
      s5cmd) set -- s5cmd --log error cp --concurrency 16 --part-size 16 's3://delivered/x/*' "$w/d/" ;;
    esac
    before=$(cpu) code=0
    perf stat -a -x, -o "$w/perf" -e context-switches /usr/bin/time -o "$w/time" -f '%e,%U,%S' "$@" >/dev/null || code=$?
    after=$(cpu)
    [ "$round" = 0 ] || echo "$round,$tool,$(tail -n 1 "$w/time"),$(echo "$after - $before" | bc),$(grep context "$w/perf" | cut -d, -f1),$code"
  done
done
