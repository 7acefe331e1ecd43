#!/bin/bash
# Inside the VM: everything that asks for real verbs. all.sh SELFTEST UNITS P2P SUITE EXAMPLE MLX5
#
#   SELFTEST   fusewire-verbs' example `verbs-selftest`
#   UNITS      fusewire-transports' own tests, of which `host_ib` run over verbs
#   P2P        fusewire-transports' test program `p2p`
#   SUITE      fusewire-tests' program `gpu-suite`
#   EXAMPLE    fusewire-examples' program `infiniband`
#   MLX5       fusewire-mlx5's test program `no_adapter`
set -eu
selftest=$1 units=$2 p2p=$3 suite=$4 example=$5 mlx5=$6
export FUSEWIRE_TEST_VERBS=1 RUST_BACKTRACE=0
step() { echo "--- $(cut -d' ' -f1 /proc/uptime) s: $*"; }
netem() { for d in rdma0 rdma1; do tc qdisc replace dev $d root netem "$@"; done; }
clean() { for d in rdma0 rdma1; do tc qdisc del dev $d root; done; }
no_mlx5() { # what it must say
    "$mlx5" --nocapture >/tmp/mlx5 2>&1 && grep -q "^no adapter: $1" /tmp/mlx5 || { cat /tmp/mlx5; exit 1; }
}
host_ib() { "$suite" --device host --over host-ib --mode processes --limit 200 "$@"; }

step "every verb"
"$selftest"
step "adapters that are not mlx5"
no_mlx5 "there is rxe0, rxe1, but that is not an mlx5 adapter"
step "chunks between host programs"
"$p2p" --test-threads 1 --skip mock
step "the example between 2 and 4 processes"
"$example" --ranks 2
"$example" --ranks 4
step "HostIb without kernels: refusals, lost requests, a full ring"
"$units" --test-threads 1 host_ib::
step "HostIb between 2 processes"
# Left out: windows and multi_peer, which reach ranks of one host by mapped memory; LL128, which HostIb has not; and for their time
# five cases whose kernels are in others too.
host_ib --ranks 2 --skip windows:: --skip window_faults:: --skip multi_peer:: --skip ll128:: --skip random::calls \
    --skip several_graphs --skip replays_with --skip schedules::replayed --skip all_that_can_be_tried
step "HostIb between 4 processes, two on each adapter"
host_ib --ranks 4 --filter hooks:: --filter peers::ring --filter processes::rank_0
step "3 ms of delay each way: a fence decides"
netem delay 3ms
"$selftest" fence
if "$selftest" no-fence; then echo "FAILED  the fence check cannot fail"; exit 1; fi
host_ib --ranks 2 --filter all_gather_by_get --filter windows::send_and_receive
step "3 ms of delay and 1% loss: nothing is lost or doubled"
netem delay 3ms loss 1%
"$p2p" --test-threads 1 staging_wraps hooks_make control_messages
host_ib --ranks 2 --filter sizes_follow --filter all_gather_by_get
step "3 ms of delay and 10% loss: reads and writes are sent again"
netem delay 3ms loss 10%
"$selftest" loss
host_ib --ranks 2 --filter all_gather_by_get
lost=$(tc -s qdisc show | sed -n 's/.*dropped \([0-9]*\),.*/\1/p' | awk '{ n += $1 } END { print n }')
echo "$lost packets were dropped"
[ "$lost" -gt 0 ] || { echo "FAILED  no packet was lost: this shows nothing"; exit 1; }
clean
step "ports without a link, then no adapter"
for d in rdma0 rdma1; do ip link set $d down; done
"$selftest" none
for d in rxe0 rxe1; do rdma link delete $d; done
"$selftest" none
if host_ib --ranks 2 --filter peers::pairs >/tmp/none 2>&1; then
    echo "FAILED  HostIb without an adapter"; exit 1
fi
grep -q "no RDMA adapter: .*FUSEWIRE_IB_HCA" /tmp/none || { cat /tmp/none; exit 1; }
no_mlx5 "there is none on this machine"
# What needs no adapter goes on.
"$suite" --device host --mode processes --ranks 2 --filter peers::pairs
step "all as expected"
