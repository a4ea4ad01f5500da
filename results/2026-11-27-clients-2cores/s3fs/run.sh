# What thalweg writes to a bucket, read through s3fs, and the other way round. Needs versitygw, s3fs and FUSE.
# Usage: bash run.sh THALWEG EMPTY-DIRECTORY >transcript.txt
thalweg=$1 w=$2 port=17070
export HOME=$w/home XDG_STATE_HOME=$w/state XDG_CONFIG_HOME=$w/config AWS_ACCESS_KEY_ID=lab AWS_SECRET_ACCESS_KEY=lab-secret-0123 AWS_REGION=us-east-1
export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_EC2_METADATA_DISABLED=true
mkdir -p "$w"/{home,src/deep/er,store/bkt,mnt,back}
ROOT_ACCESS_KEY=lab ROOT_SECRET_KEY=lab-secret-0123 versitygw --port 127.0.0.1:$port posix "$w/store" >"$w/gw.log" 2>&1 &
gw=$!
trap 'fusermount -u "$w/mnt"; kill $gw' EXIT
sleep 1
echo "lab:lab-secret-0123" >"$w/passwd"; chmod 600 "$w/passwd"
"$thalweg" gen 200x16KiB "$w/src" >/dev/null
head -c 40000000 /dev/urandom >"$w/src/deep/er/large"; : >"$w/src/empty"; echo 'x' >"$w/src/a b+c%20ü"
chmod 640 "$w/src/deep/er/large"; chmod 755 "$w/src/empty"; touch -d '2019-03-04 05:06:07.125' "$w/src/deep/er/large"; touch -d '1999-12-31 23:59:58' "$w/src/empty"
list() { (cd "$1" && find . -type f | while read -r f; do echo "$(stat -c "%s %a %Y" "$f") $(sha256sum <"$f" | cut -c1-16) $f"; done) | LC_ALL=C sort; }
cd "$w" || exit
"$thalweg" cp -p src/ s3://bkt/there/ 2>&1 | tail -1
s3fs bkt "$w/mnt" -o url=$AWS_ENDPOINT_URL,use_path_request_style,passwd_file="$w/passwd" || exit 1
list src >a; list mnt/there >b
echo "through s3fs, of $(wc -l <a) files: $(LC_ALL=C comm -12 a b | wc -l) have the same size, mode, time and content"
LC_ALL=C comm -3 a b | head -6
mkdir mnt/back && cp -rp src/. mnt/back/ && sync
"$thalweg" cp -p s3://bkt/back/ back/ 2>&1 | tail -1
list back >c
echo "written by s3fs, of $(wc -l <a) files: $(LC_ALL=C comm -12 a c | wc -l) have the same size, mode, time and content"
LC_ALL=C comm -3 a c | head -6
"$thalweg" sync -n src/ s3://bkt/back/ 2>&1 | tail -2
