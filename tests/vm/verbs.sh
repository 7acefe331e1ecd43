#!/bin/sh
# Inside the VM: the verbs layer by itself. verbs.sh SELFTEST
set -eu
say() { echo "--- $*"; }
say "all verbs"
"$1"
say "a fence decides, with 3 ms of delay each way"
for d in rdma0 rdma1; do tc qdisc add dev $d root netem delay 3ms; done
"$1" fence
if "$1" no-fence; then echo "FAILED  the fence check cannot fail"; exit 1; fi
for d in rdma0 rdma1; do tc qdisc del dev $d root; done
say "ports without a link, then no adapters"
for d in rdma0 rdma1; do ip link set $d down; done
"$1" none
for d in rxe0 rxe1; do rdma link delete $d; done
"$1" none
echo "verbs: all as expected"
