# COUNT files of 16 KiB to a store and back, at 1 ms and at 50 ms in turn: by an endpoint that stands beside the store and has the
# bucket as a root, and directly. Usage (root): bash run.sh THALWEG EMPTY-DIRECTORY ROUNDS RATE COUNT >times.csv; needs versitygw.
set -e
thalweg=$1 w=$2 rounds=$3 rate=$4 count=$5 lab=beside-$$
export HOME=$w/home THALWEG_CONFIG=$w/config.toml AWS_ACCESS_KEY_ID=race AWS_SECRET_ACCESS_KEY=race-secret AWS_EC2_METADATA_DISABLED=true
mkdir -p "$w/home" "$w/src" "$w/store/delivered" "$w/serve" "$w/d"
printf '[stores.far]\nkind = "s3"\nendpoint = "http://b:9811"\nallow_clear = true\n' >"$w/config.toml"
"$thalweg" gen "${count}x16KiB" "$w/src" >&2
"$thalweg" lab up continent --name $lab --set wan.rtt=50ms --set wan.rate="$rate" >&2
trap 'kill $servers; "$thalweg" lab down $lab >&2' EXIT
"$thalweg" lab exec --lab $lab b -- versitygw --access race --secret race-secret --port :9811 --quiet --keep-alive posix "$w/store" >"$w/gateway.log" 2>&1 &
servers=$!
printf '[stores.here]\nkind = "s3"\nendpoint = "http://127.0.0.1:9811"\nallow_clear = true\n[roots]\narchive = "s3+here://delivered/"\n' >"$w/serve.toml"
sleep 1
"$thalweg" lab exec --lab $lab b -- env XDG_STATE_HOME="$w/serve" "$thalweg" serve --config "$w/serve.toml" --listen '[::]:7740' --ticket-file "$w/ticket" >"$w/serve.log" 2>&1 &
servers="$servers $!"
until [ -s "$w/ticket" ]; do sleep 0.2; done
at_a() { "$thalweg" lab exec --lab $lab a -- env XDG_STATE_HOME="$w/state" "$@"; }
at_a "$thalweg" endpoint add lab --ticket-file "$w/ticket" >&2
echo round,by,rtt_ms,way,seconds,first_byte_seconds,exit,files_right
for round in $(seq 0 "$rounds"); do
  for rtt in 1 50; do
    "$thalweg" lab set --lab $lab wan rtt=${rtt}ms >&2
    for by in endpoint store; do
      case $by in endpoint) at="lab:archive" ;; store) at="s3+far://delivered" ;; esac
      name=r$round-$rtt-$by
      for way in there back; do
        rm -rf "$w/d"
        mkdir "$w/d"
        case $way in
          there) from="$w/src/" to="$at/$name/" seen="$w/store/delivered/$name" ;;
          back) from="$at/$name/" to="$w/d/" seen="$w/d" ;;
        esac
        code=0 begun=$(date +%s.%N)
        at_a "$thalweg" cp --json "$from" "$to" >"$w/json" 2>"$w/err" || code=$?
        ended=$(date +%s.%N)
        right=$(diff -rq "$w/src" "$seen" >&2 && find "$seen" -type f | wc -l)
        first=$(grep -o '"first_byte_seconds":[0-9.]*' "$w/json" | tail -n 1 | cut -d: -f2)
        [ "$round" = 0 ] || echo "$round,$by,$rtt,$way,$(echo "$ended - $begun" | bc),$first,$code,$right"
      done
      rm -rf "$w/store/delivered/$name"
    done
  done
done
"$thalweg" lab status >&2 || true
