# Both builds from nothing, one after the other, nothing else running; crates downloaded before. Then the demo.
for v in before after; do
    cd "$WORK/$v" # a clone each, of 41a9ef4 and 8f7cd38
    began=$(date +%s.%N)
    /usr/bin/time -f "build %e s, processor %U + %S s" cargo build --release --locked -q 2>&1 | tail -1
    built=$(date +%s.%N)
    ./target/release/thalweg demo > "../demo-$v.txt" 2>&1
    echo "$v $(git rev-parse --short HEAD) rc $? build $(echo "$built-$began" | bc) demo $(echo "$(date +%s.%N)-$built" | bc)"
done
