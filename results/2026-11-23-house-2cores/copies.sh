#!/bin/bash
# copies.sh ROUNDS SRC "name=bin args" ... : alternated copies over loopback, all digests on
R=$1; SRC=$2; shift 2
W=/dev/shm/ab; rm -rf $W/srv; mkdir -p $W/srv
i=0; declare -A N B A P
for v in "$@"; do i=$((i+1)); N[$i]=${v%%=*}; rest=${v#*=}; B[$i]=${rest%% *}; A[$i]=${rest#* }; [ "$rest" = "${rest%% *}" ] && A[$i]=
 mkdir -p $W/srv/$i/root $W/srv/$i/c $W/srv/$i/s
 THALWEG_STATE_DIR=$W/srv/$i/s XDG_STATE_HOME=$W/srv/$i/s XDG_CONFIG_HOME=$W/srv/$i/s ${B[$i]} serve --listen 127.0.0.1:$((17800+i)) --root $W/srv/$i/root --ticket-file $W/srv/$i/t > $W/srv/$i/log 2>&1 & P[$i]=$!
done
sleep 1
for i in "${!N[@]}"; do XDG_CONFIG_HOME=$W/srv/$i/c XDG_STATE_HOME=$W/srv/$i/c XDG_CACHE_HOME=$W/srv/$i/c XDG_RUNTIME_DIR=$W/srv/$i/c ${B[$i]} endpoint add ep$i --ticket-file $W/srv/$i/t >/dev/null 2>$W/srv/$i/adderr || cat $W/srv/$i/adderr $W/srv/$i/log; done
for r in $(seq 0 $R); do for i in $(seq 1 $#); do
 s=$(date +%s.%N); XDG_CONFIG_HOME=$W/srv/$i/c XDG_STATE_HOME=$W/srv/$i/c XDG_CACHE_HOME=$W/srv/$i/c XDG_RUNTIME_DIR=$W/srv/$i/c ${B[$i]} cp ${A[$i]} -q $SRC/ ep$i:x$r/ > $W/srv/$i/out 2>&1 || { cat $W/srv/$i/out; }
 e=$(date +%s.%N); [ $r -gt 0 ] && echo "$r ${N[$i]} $(echo "$e - $s" | bc)"; rm -rf $W/srv/$i/root/x$r; done; done
kill ${P[@]}; wait; rm -rf $W/srv
