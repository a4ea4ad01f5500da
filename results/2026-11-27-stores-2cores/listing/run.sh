# A listing of KEYS keys, 1,000 a page, each page after MILLISECONDS: keys a second and the peak of memory, with both forms of output.
# Usage: bash run.sh THALWEG FAKE-S3 EMPTY-DIRECTORY KEYS MILLISECONDS ROUNDS >times.csv
# FAKE-S3 is `cargo build --release -p fakes --example s3`. Needs GNU time.
set -e
thalweg=$1 fake=$2 w=$3 keys=$4 ms=$5 rounds=$6
export HOME=$w/home XDG_STATE_HOME=$w/state XDG_CONFIG_HOME=$w THALWEG_CONFIG=$w/config.toml
export AWS_ACCESS_KEY_ID=fake AWS_SECRET_ACCESS_KEY=fake-secret-0123456789 AWS_EC2_METADATA_DISABLED=true AWS_REGION=us-east-1
mkdir -p "$w/home"
"$fake" "$keys" 1000 "$ms" >"$w/url" &
server=$!
trap 'kill $server' EXIT
until [ -s "$w/url" ]; do sleep 0.2; done
url=$(cat "$w/url")
printf '[stores.m]\nkind = "s3"\nendpoint = "%s"\nregion = "us-east-1"\n' "$url" >"$w/config.toml"
export S3_ENDPOINT_URL=$url
echo round,command,keys,seconds,keys_per_second,processor_seconds,peak_MiB,exit
for round in $(seq 1 "$rounds"); do
  for command in "thalweg ls" "thalweg du"; do
    case $command in
      *ls) set -- "$thalweg" ls -R s3+m://bkt/a/ ;;
      *du) set -- "$thalweg" du s3+m://bkt/a/ ;;
    esac
    [ "$command" = "s5cmd ls" ] && set -- s5cmd ls 's3://bkt/a/*'
    code=0
    /usr/bin/time -o "$w/time" -f '%e %U %S %M' "$@" 2>"$w/err" | { case $command in *ls) grep -c f ;; *) tail -n 1 | cut -c1-200 ;; esac; } >"$w/count" || code=$?
    read -r seconds user system peak < <(tail -n 1 "$w/time")
    case $command in *ls) count=$(cat "$w/count") ;; *) count=$keys; cat "$w/count" >&2 ;; esac
    echo "$round,$command,$count,$seconds,$(echo "$count / $seconds" | bc),$(echo "$user + $system" | bc),$((peak / 1024)),$code"
  done
done
