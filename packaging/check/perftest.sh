#!/bin/sh
# perftest.sh NONIC PROGRAM: both sides of a program of perftest, of a user without privileges, on loopback.
set -eu

# Both sides once; what the client said is in /tmp/client.
run() {
    "$1" run -- "$2" -d roce_lo >/tmp/server 2>&1 &
    server=$!
    # The server listens on TCP port 18515, which is 4853 in the kernel's table.
    turns=0
    until grep -q ':4853 00000000:0000 0A' /proc/net/tcp /proc/net/tcp6; do
        kill -0 $server || { cat /tmp/server; exit 1; }
        turns=$((turns + 1))
        [ $turns -lt 600 ] || { echo "the server does not listen"; exit 1; }
        sleep 0.05
    done
    client=0
    "$1" run -- "$2" -d roce_lo 127.0.0.1 >/tmp/client 2>&1 || client=$?
    wait $server || client=$?
    return $client
}

# perftest compares the processor's clock with the time of day. If others had the processor meanwhile it gives up, when all has been
# transferred: "Correlation coefficient r^2 … Can't produce a report". That says nothing about nonic.
runs=1
until run "$@"; do
    grep -q "Can't produce a report" /tmp/client /tmp/server && [ $runs -lt 5 ] || { cat /tmp/client /tmp/server; exit 1; }
    runs=$((runs + 1))
    echo "perftest could not measure the processor's clock: once more"
done
grep -A1 '#bytes' /tmp/client
