# One request of a hundred refused or cut, beside none: the same 4,000 files of 16 KiB to the fake store and back, in turn.
# Usage: bash run.sh THALWEG FAKE-S3 EMPTY-DIRECTORY >times.csv; FAKE-S3 is `cargo build -p fakes --example s3`.
set -e
thalweg=$1 fake=$2 w=$3
export HOME=$w/home XDG_STATE_HOME=$w/state XDG_CONFIG_HOME=$w THALWEG_CONFIG=$w/config.toml
export AWS_ACCESS_KEY_ID=fake AWS_SECRET_ACCESS_KEY=fake-secret-0123456789 AWS_EC2_METADATA_DISABLED=true
mkdir -p "$w/home" "$w/src"
: >"$w/config.toml"
"$thalweg" gen 4000x16KiB "$w/src" >&2
for every in 0 100; do
  "$fake" 0 1 1 $every >"$w/url.$every" &
  servers="$servers $!"
done
trap 'kill $servers' EXIT
sleep 1
for every in 0 100; do
  printf '[stores.e%s]\nkind = "s3"\nendpoint = "%s"\nregion = "us-east-1"\n' $every "$(cat "$w/url.$every")" >>"$w/config.toml"
done
echo round,way,one_in,seconds,exit,files_failed,files_right
for round in 0 1 2 3 4 5 6 7 8 9; do
  for every in 0 100; do
    for way in put get; do
      rm -rf "$w/d" "$w/state"
      mkdir "$w/d"
      case $way in
        put) from="$w/src/" to="s3+e$every://bkt/r$round/" ;;
        get) from="s3+e$every://bkt/r$round/" to="$w/d/" ;;
      esac
      code=0 begun=$(date +%s.%N)
      "$thalweg" cp --json "$from" "$to" >"$w/json" || code=$?
      ended=$(date +%s.%N)
      right=
      [ $way = put ] || right=$(diff -rq "$w/src" "$w/d" >&2 && find "$w/d" -type f | wc -l)
      failed=$(grep -o '"failed":[0-9]*' "$w/json" | tail -n 1 | cut -d: -f2)
      echo $round,$way,$every,"$(echo "$ended - $begun" | bc)",$code,"$failed",$right
    done
  done
done
