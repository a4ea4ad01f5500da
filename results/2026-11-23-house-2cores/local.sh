#!/bin/bash
# local.sh ROUNDS SRC "name=bin"...: alternated copies within this host
R=$1; SRC=$2; shift 2; W=/dev/shm/lc; rm -rf $W; mkdir -p $W
for r in $(seq 0 $R); do for v in "$@"; do n=${v%%=*}; b=${v#*=}
 export XDG_CONFIG_HOME=$W/$n/c XDG_STATE_HOME=$W/$n/c XDG_CACHE_HOME=$W/$n/c XDG_RUNTIME_DIR=$W/$n/c; mkdir -p $W/$n/c
 s=$(date +%s.%N); $b cp -q $SRC/ $W/$n/x/ || echo failed; e=$(date +%s.%N); [ $r -gt 0 ] && echo "$r $n $(echo "$e - $s" | bc)"; rm -rf $W/$n/x; done; done; rm -rf $W
