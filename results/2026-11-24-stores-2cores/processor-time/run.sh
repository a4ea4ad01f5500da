# Processor time of server and client, and requests by kind: 10,000 x 16 KiB to versitygw and back, on one host.
# `kept`: the server keeps connections; `closed`: it ends each after one answer. `thalweg-fresh`: it knows nothing of the objects yet.
# Usage: bash run.sh THALWEG EMPTY-DIRECTORY-IN-MEMORY >times.csv; s5cmd, rclone and versitygw are in PATH.
thalweg=$1 w=$2 port=9871
mkdir -p "$w/home" "$w/src"
export HOME=$w/home XDG_STATE_HOME=$w/state XDG_CONFIG_HOME=$w THALWEG_CONFIG=$w/config.toml S3_ENDPOINT_URL=http://127.0.0.1:$port
export AWS_ACCESS_KEY_ID=race AWS_SECRET_ACCESS_KEY=race-secret AWS_EC2_METADATA_DISABLED=true AWS_REGION=us-east-1
export RCLONE_CONFIG_RACE_TYPE=s3 RCLONE_CONFIG_RACE_PROVIDER=Other RCLONE_CONFIG_RACE_FORCE_PATH_STYLE=true
export RCLONE_CONFIG_RACE_ENDPOINT=$S3_ENDPOINT_URL RCLONE_CONFIG_RACE_ACCESS_KEY_ID=race RCLONE_CONFIG_RACE_SECRET_ACCESS_KEY=race-secret
unset AWS_CA_BUNDLE
printf '[stores.race]\nkind = "s3"\nendpoint = "%s"\nallow_clear = true\n' $S3_ENDPOINT_URL >"$w/config.toml"
"$thalweg" gen 10000x16KiB "$w/src" >&2

ticks() { awk '{ print $14 + $15 }' /proc/$server/stat; }
count() { grep -c "$1" "$w/access.log"; }

one() {
  way=$1 tool=$2
  shift 2
  case $way in
    get) rm -rf "$w/d" && mkdir "$w/d" ;;
    put) rm -rf "$w/gw/bucket/$tool" ;;
  esac
  case $way$tool in putthalweg | *fresh) rm -rf "$w/state" ;; esac
  : >"$w/access.log"
  before=$(ticks)
  /usr/bin/time -f '%e %U %S' -o "$w/time" "$@" >&2 || echo "$tool failed" >&2
  after=$(ticks)
  read -r seconds user system < <(tail -n 1 "$w/time")
  arrived=$([ $way = get ] && echo "$w/d" || echo "$w/gw/bucket/$tool")
  files=$(find "$arrived" -type f | wc -l)
  sleep 0.3
  echo $connections,$round,$way,$tool,$seconds,"$(echo "$user + $system" | bc)","$(echo "scale=2; ($after - $before) / 100" | bc)",$files,"$(
    count ' s3_GetObject '),$(count ' s3_PutObject '),$(count ' s3_HeadObject '),$(count ' s3_ListObjects')"
}

echo connections,round,way,tool,seconds,client_cpu_seconds,server_cpu_seconds,files,get,put,head,list
for connections in kept closed; do
  flag=
  [ $connections = closed ] || flag=--keep-alive
  rm -rf "$w/gw" && mkdir -p "$w/gw/bucket"
  versitygw --access race --secret race-secret --port 127.0.0.1:$port --quiet --access-log "$w/access.log" $flag posix "$w/gw" >&2 &
  server=$!
  sleep 1
  for round in ${ROUNDS:-0 1 2}; do
    one put thalweg "$thalweg" cp "$w/src/" s3+race://bucket/thalweg/
    one get thalweg "$thalweg" cp s3+race://bucket/thalweg/ "$w/d/"
    one get thalweg-fresh "$thalweg" cp s3+race://bucket/thalweg/ "$w/d/"
    one put s5cmd s5cmd --log error --numworkers 256 cp "$w/src/" s3://bucket/s5cmd/
    one get s5cmd s5cmd --log error --numworkers 256 cp 's3://bucket/thalweg/*' "$w/d/"
    one put rclone rclone --config none --log-level ERROR copy --transfers 64 --checkers 64 --no-check-dest --no-traverse \
      --s3-no-check-bucket --s3-no-head --s3-disable-checksum "$w/src" race:bucket/rclone
    one get rclone rclone --config none --log-level ERROR copy --transfers 64 --checkers 64 --no-check-dest --use-server-modtime \
      --ignore-checksum race:bucket/thalweg "$w/d"
  done
  kill $server
  wait $server
done
