#!/usr/bin/env bash
# run.sh test   the GPU tests: driver layer, conformance suite with ranks as threads and as processes, the example
#               On one GPU: with RANKS="1 2 4", MODES="threads processes", OVER="memory ibgda mesh host-ib", or fewer; ranks share the GPU,
#               processes under an MPS daemon of this script's own
# run.sh bench  all-to-all against NCCL (torch), in one run; JSON lines with --json, written to bench-*.jsonl in any case
#               On one GPU: with 2 and 4 ranks that share it; beside NCCL from 2.30 on
# run.sh compare OLD_PACKAGE  this package beside an older one on one GPU, in turn, ROUNDS=6, RANKS="2 4"; fails if a row is slower.
#               DEVICE=host: on CPU threads
# run.sh collectives  all-gather, broadcast, reduce, reduce-scatter and all-reduce against NCCL's and torch's, in one run; written to collectives-*.jsonl
# run.sh fused  hooks fused into an all-to-all against torch's operations around NCCL's, in one run; written to fused-*.jsonl
# run.sh rows [ROWS..]  hooks of whole rows, and the same in Triton around NCCL; both are checked, the hooks against torch on the same bytes
#               DEVICE=host: on CPU threads, without Triton; as well for patterns and hooks
# run.sh patterns [ROWS..]  what follows a layer whose ranks each have a part of the sum, as hooks, and in torch around NCCL; the hooks are checked
#               against torch on the same bytes
# run.sh torch  the Python package with PyTorch, under torchrun: collectives, gradients, compiled and captured graphs, DDP and FSDP2 steps
# run.sh hooks [ROWS..]  what hooks cost on one GPU, one rank alone, and the same in CUDA C++; both are checked, the hooks against torch as well
# run.sh baselines  our kernels against ones written by hand in CUDA C++ and compiled by this machine's nvcc,
#               without and with the checks that ours make; written to baselines.jsonl and baselines-checks.jsonl
# run.sh tune   a tuning table for these GPUs, written to tuning.jsonl: `FUSEWIRE_TUNING` of any program may name it
# run.sh sanitize  parts of the suite under compute-sanitizer's memcheck, if that is installed
# All use all GPUs; GPUS=n uses fewer.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$here}
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
gpus=${GPUS:-$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | wc -l)}
device=${DEVICE:-cuda}
if [ "$gpus" -lt 1 ] && [ "$device" = cuda ]; then echo "no GPU: nvidia-smi lists none"; exit 3; fi
# Ranks that share a GPU share its hardware queues, of which there are 8 unless more are asked for.
if [ "$gpus" = 1 ]; then export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-32}; fi
command=${1:-}; shift || true
failed=0
step() { # NAME SECONDS COMMAND..
  local name=$1 limit=$2; shift 2
  echo "=== $name"
  timeout -k 10 "$limit" "$@" || { echo "FAILED: $name (exit $?)"; failed=1; }
}
# Torch on the bytes that a program has, and on what it gives: of the fewest rows. They stay where something is wrong.
against_torch() { # NAME PROGRAM ARGUMENTS..
  local name=$1 before=$failed saved; saved=$out/saved-$2; shift
  rm -rf "$saved"
  step "$name" 200 "$here/$1" --device "$device" "${@:2}" --save "$saved"
  step "$name, against torch" 200 python3 "$here/against_torch.py" --self-test "$saved"
  [ "$failed" != "$before" ] || rm -rf "$saved"
}
shares="Ranks that share a GPU share its memory: figures are for beside others of this kind, never for beside NVLink's."
# MPS lets processes that share a GPU run at the same time. A client that was killed can break its server: each step has a daemon of its own.
mps=
# All clients together have few hardware queues: none asks for more than it gets by itself.
connections=${CUDA_DEVICE_MAX_CONNECTIONS:-}
mps_start() {
  unset CUDA_DEVICE_MAX_CONNECTIONS
  command -v nvidia-cuda-mps-control >/dev/null || { why="nvidia-cuda-mps-control is not on the PATH"; return 1; }
  mps=$(mktemp -d /tmp/mps-XXXXXX) || { why="mktemp made no folder"; return 1; }
  export CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps
  timeout -k 5 30 nvidia-cuda-mps-control -d < /dev/null > "$mps/start" 2>&1 && return 0
  why="nvidia-cuda-mps-control -d: $(tail -n 1 "$mps/start")"; mps_stop; return 1
}
mps_stop() {
  [ -n "$mps" ] || return 0
  local pid; pid=$(cat "$mps/nvidia-cuda-mps-control.pid" 2>/dev/null)
  echo "quit -t 10" | timeout -k 5 30 nvidia-cuda-mps-control > /dev/null 2>&1
  local tries=10
  while [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; do
    # It waits for a client that does not end.
    if [ $tries = 0 ]; then kill -9 "$pid"; break; fi
    sleep 0.5; tries=$((tries - 1))
  done
  rm -rf "$mps"; mps=
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  if [ -n "$connections" ]; then export CUDA_DEVICE_MAX_CONNECTIONS=$connections; fi
}
# Lines that hooks print: of each rank what it sends, and what it gets.
prints() { # RANKS
  local lines; lines=$("$here/prints" --device cuda --ranks "$1" --threads) || return 1
  [ "$(grep -c ' element [0-9]*\] -1.5 goes to rank ' <<< "$lines")" = "$1" ] \
    && [ "$(grep -c ' element [0-9]*\] -1.5 came from rank [0-9]*: 25% of that is kept' <<< "$lines")" = "$1" ] && return 0
  echo "$lines"; return 1
}
trap mps_stop EXIT
trap 'exit 130' INT TERM
cells=(); left_out=()
suite() { # MODE OVER RANKS ARGUMENTS..
  local mode=$1 over=$2 ranks=$3; shift 3
  local log="$out/suite-$over-$ranks-$mode.log" case counts
  echo "=== suite over $over, $ranks ranks that share the GPU, as $mode"
  : > "$log"
  if [ "$mode" = processes ] && [ "$ranks" -gt 1 ]; then
    part "$log" "$@" --mode "$mode" --over "$over" --ranks "$ranks" --skip processes:: || return
    for case in $("$here/gpu-suite" --list --over "$over" "$@" | grep -o '^processes::[a-z0-9_]*'); do
      part "$log" --mode "$mode" --over "$over" --ranks "$ranks" --filter "$case" || return
    done
  else
    part "$log" "$@" --mode "$mode" --over "$over" --ranks "$ranks" || return
  fi
  counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" \
    | awk '{ passed += $1; failed += $3; without += $5; seconds += $9 } END { if (NR) printf "%d passed, %d failed, %d left out in %.1f s", passed, failed, without, seconds }')
  cells+=("${counts:-no counts}")
}
# Under MPS with a daemon of its own.
part() { # LOG ARGUMENTS..
  local log=$1 code; shift
  if [[ " $* " == *" --mode processes "* && " $* " != *" --ranks 1 "* ]] && ! mps_start; then
    echo "left out: $why"; left_out+=("over $over, $ranks processes: $why"); cells+=("left out"); return 1
  fi
  timeout -k 10 400 "$here/gpu-suite" "$@" 2>&1 | tee -a "$log"
  code=${PIPESTATUS[0]}; mps_stop
  # A filter may leave nothing for so many ranks.
  if [[ " $* " == *" --filter "* && $(tail -n 1 "$log") == "0 passed, 0 failed"* ]]; then code=0; fi
  if [ "$code" != 0 ]; then echo "FAILED: exit $code"; failed=1; fi
}
test_on_one() {
  local over ranks mode modes=${MODES:-threads processes} lines=()
  for over in ${OVER:-memory ibgda mesh host-ib}; do
    for ranks in ${RANKS:-1 2 4}; do
      # Two domains of two.
      [ "$over" = mesh ] && [ "$ranks" != 4 ] && continue
      cells=()
      for mode in $modes; do suite "$mode" "$over" "$ranks" "$@"; done
      lines+=("$(printf '%-8s %5s' "$over" "$ranks"; printf ' | %-46s' "${cells[@]}")")
    done
  done
  for ranks in 1 4; do
    step "example ring over a window, $ranks ranks" 60 "$here/window_ring" --device cuda --ranks "$ranks"
    step "example halo over a window, $ranks ranks" 60 "$here/window_halo" --device cuda --ranks "$ranks" --rows 200 --cols 1000
  done
  step "beside another CUDA library, 1 rank" 60 "$here/beside_cudarc" --ranks 1
  step "device math" 120 "$here/math"
  echo "=== lines that hooks print"; prints 4 || { echo "FAILED: prints"; failed=1; }
  step "example all-to-all, 4 ranks" 120 "$here/all_to_all" --device cuda --ranks 4 --size 64K,1M,16M
  left_out+=("driver layer: it is tried between two GPUs")
  echo "=== suite on one GPU"
  printf '%-8s %5s' over ranks; for mode in $modes; do printf ' | %-46s' "$mode"; done; echo
  printf '%s\n' "${lines[@]}"
  if [ ${#left_out[@]} -gt 0 ]; then printf 'left out: %s\n' "${left_out[@]}"; fi
}
# Why NCCL cannot have several ranks on one GPU here; nothing if it can.
nccl_refuses() {
  local version; version=$(timeout 60 python3 -c 'import torch; print("%d %d" % torch.cuda.nccl.version()[:2])' 2>/dev/null) \
    || { echo "python3 has no torch with NCCL"; return; }
  set -- $version
  [ "$1" -gt 2 ] || [ "$2" -ge 30 ] || echo "NCCL $1.$2 has one rank a GPU (from 2.30 on: NCCL_MULTI_RANK_GPU_ENABLE)"
}
bench_on_one() {
  local ranks json=$1 refused nccl ours kind
  refused=$(nccl_refuses); kind=--processes
  if [ -z "$refused" ] && ! mps_start; then refused=$why; fi
  if [ -n "$refused" ]; then echo "without NCCL: $refused" >&2; kind=--threads; fi
  echo "$shares" >&2
  for ranks in 2 4; do
    nccl=$out/bench-nccl-$ranks.jsonl ours=$out/bench-fusewire-$ranks.jsonl
    timeout -k 10 200 "$here/bench" --device cuda --ranks "$ranks" "$kind" --json > "$ours" || { echo "FAILED: bench with $ranks ranks"; failed=1; }
    if [ -z "$refused" ]; then
      NCCL_MULTI_RANK_GPU_ENABLE=1 timeout -k 10 200 python3 -m torch.distributed.run --nproc-per-node "$ranks" "$here/nccl.py" > "$nccl" 2> "$out/bench-nccl.log" \
        || { echo "NCCL's side did not run with $ranks ranks; see $out/bench-nccl.log"; failed=1; }
    fi
    if [ -n "$refused" ]; then set -- "$ours"; else set -- "$nccl" "$ours"; fi
    if [ "$json" = 1 ]; then cat "$@"; else echo "$ranks ranks as ${kind#--}"; "$here/bench" --compare "$@" || failed=1; fi
  done
  mps_stop
  : > "$out/bench-windows.jsonl"
  for ranks in 2 4; do
    timeout -k 10 120 "$here/bench_windows" --device cuda --ranks "$ranks" --threads --json >> "$out/bench-windows.jsonl" \
      || { echo "FAILED: bench_windows with $ranks ranks"; failed=1; }
  done
  cat "$out/bench-windows.jsonl"
}
compare() { # OLD_PACKAGE
  local old=$1 rounds=${ROUNDS:-6} ranks round side folder olds= news=
  if [ ! -d "$old" ]; then echo "run.sh compare: $old is no folder; give one that \`cargo xtask gpu --package DIR\` made"; exit 2; fi
  if [ ! -x "$old/bench_shared" ]; then
    echo "run.sh compare: $old has no bench_shared. Packages have it since the commit \"Compare two packages on one GPU\" (fusewire 0.1.0, 2026-11-23): make one there or later"
    exit 2
  fi
  if ! [[ $rounds =~ ^[1-9][0-9]*$ ]]; then echo "run.sh compare: ROUNDS=$rounds is no number above 0"; exit 2; fi
  echo "$shares"
  for ((round = 1; round <= rounds; round++)); do
    # Who comes second finds another GPU: warmer, and with other memory in use.
    sides="old new"; ((round % 2)) || sides="new old"
    for ranks in ${RANKS:-2 4}; do
      for side in $sides; do
        folder=$here; [ $side = old ] && folder=$old
        timeout -k 10 100 "$folder/bench_shared" --device "$device" --ranks "$ranks" > "$out/compare-$side-$round-$ranks.jsonl" 2> "$out/compare-$side.log" \
          || { echo "FAILED: $side with $ranks ranks in round $round (exit $?): $(grep -v '^left out' "$out/compare-$side.log" | tail -n 1)"; failed=1; }
      done
    done
    for side in old new; do
      for ranks in ${RANKS:-2 4}; do cat "$out/compare-$side-$round-$ranks.jsonl"; done > "$out/compare-$side-$round.jsonl"
    done
    olds+=,$out/compare-old-$round.jsonl news+=,$out/compare-new-$round.jsonl
    echo "round $round of $rounds"
  done
  grep -h '^left out' "$out/compare-new.log"
  "$here/bench_shared" --compare "${olds#,}" "${news#,}" || failed=1
}
case $command in
  test)
    if [ "$gpus" = 1 ]; then test_on_one "$@"; else
    if [ "$gpus" -ge 2 ]; then step "driver layer" 240 "$here/driver-selftest" | tail -n 3; fi
    step "suite, ranks as threads" 400 "$here/gpu-suite" --ranks "$gpus" --mode threads "$@"
    step "suite, ranks as processes" 400 "$here/gpu-suite" --ranks "$gpus" --mode processes "$@"
    step "suite over emulated adapters, ranks as threads" 400 "$here/gpu-suite" --ranks "$gpus" --mode threads --over ibgda "$@"
    step "suite over proxies, ranks as processes" 400 "$here/gpu-suite" --ranks "$gpus" --mode processes --over host-ib "$@"
    if [ "$gpus" -ge 4 ]; then step "suite in domains of two GPUs, ranks as processes" 400 "$here/gpu-suite" --ranks "$gpus" --mode processes --over mesh "$@"; fi
    step "example ring over a window" 60 "$here/window_ring" --device cuda --ranks "$gpus"
    step "example halo over a window" 60 "$here/window_halo" --device cuda --ranks "$gpus" --rows 200 --cols 1000
    step "beside another CUDA library" 60 "$here/beside_cudarc" --ranks "$gpus"
    step "device math" 120 "$here/math"
    echo "=== lines that hooks print"; prints "$gpus" || { echo "FAILED: prints"; failed=1; }
    step "example all-to-all" 120 "$here/all_to_all" --device cuda --ranks "$gpus"
    fi
    ;;
  bench)
    json=0; [ "${1:-}" = --json ] && json=1
    if [ "$gpus" = 1 ]; then bench_on_one $json; else
    timeout -k 10 200 python3 -m torch.distributed.run --nproc-per-node "$gpus" "$here/nccl.py" > "$out/bench-nccl.jsonl" 2> "$out/bench-nccl.log" \
      || { echo "NCCL's side did not run; see $out/bench-nccl.log"; failed=1; }
    timeout -k 10 300 "$here/bench" --device cuda --ranks "$gpus" --json > "$out/bench-fusewire.jsonl" || { echo "FAILED: bench"; failed=1; }
    if [ $json = 1 ]; then cat "$out/bench-nccl.jsonl" "$out/bench-fusewire.jsonl"
    else "$here/bench" --compare "$out/bench-nccl.jsonl" "$out/bench-fusewire.jsonl"; fi
    timeout -k 10 120 "$here/bench_windows" --device cuda --ranks "$gpus" --json > "$out/bench-windows.jsonl" || { echo "FAILED: bench_windows"; failed=1; }
    cat "$out/bench-windows.jsonl"
    fi
    ;;
  compare)
    if [ $# != 1 ]; then echo "usage: [ROUNDS=n] [RANKS='2 4'] run.sh compare OLD_PACKAGE"; exit 2; fi
    compare "$1"
    ;;
  collectives)
    : > "$out/collectives-nccl.jsonl"
    # A process group for each: one that hangs is not waited for by the others.
    for op in all_gather broadcast reduce reduce_scatter all_reduce; do
      timeout -k 10 60 python3 -m torch.distributed.run --nproc-per-node "$gpus" "$here/collectives.py" $op >> "$out/collectives-nccl.jsonl" 2> "$out/collectives-nccl.log" \
        || { echo "NCCL's $op did not run; see $out/collectives-nccl.log"; failed=1; }
    done
    timeout -k 10 300 "$here/bench_collectives" --device cuda --ranks "$gpus" --json-lines "$@" > "$out/collectives-fusewire.jsonl" || { echo "FAILED: bench_collectives"; failed=1; }
    "$here/bench" --compare "$out/collectives-nccl.jsonl" "$out/collectives-fusewire.jsonl" || failed=1
    ;;
  fused)
    # Neither side beside the other: each has the GPUs to itself.
    timeout -k 10 300 python3 -m torch.distributed.run --nproc-per-node "$gpus" "$here/fused.py" > "$out/fused-torch.jsonl" 2> "$out/fused-torch.log" \
      || { echo "torch's side did not run; see $out/fused-torch.log"; failed=1; }
    timeout -k 10 200 "$here/bench_fused" --device cuda --ranks "$gpus" --json "$@" > "$out/fused-fusewire.jsonl" || { echo "FAILED: bench_fused"; failed=1; }
    python3 "$here/fused.py" --compare "$out/fused-torch.jsonl" "$out/fused-fusewire.jsonl"
    ;;
  rows)
    if [ "$device" = host ]; then against_torch rows rows --ranks 3 --rows "$(IFS=,; echo "${*:-7}")"; else
    step "rows in Triton" 200 python3 -m torch.distributed.run --nproc-per-node "$gpus" "$here/rows.py" ${@:-1024 32768}
    against_torch rows rows --ranks "$gpus" --time --rows "$(IFS=,; echo "${*:-1024,32768}")"
    fi
    ;;
  patterns)
    if [ "$device" = host ]; then against_torch patterns patterns --ranks 3 --rows "$(IFS=,; echo "${*:-7}")"; else
    step "patterns in torch" 300 python3 -m torch.distributed.run --nproc-per-node "$gpus" "$here/patterns.py" ${@:-64 1024 8192}
    against_torch patterns patterns --ranks "$gpus" --time --rows "$(IFS=,; echo "${*:-64,1024,8192}")"
    fi
    ;;
  torch)
    set -- "$here"/fusewire-*.whl
    [ -e "$1" ] || { echo "there is no wheel in this package: where it was made, python3 makes no environments"; exit 3; }
    own=$(mktemp -d) || exit 1
    python3 -m pip install --quiet --no-deps --no-index --target "$own" "$1" || { echo "FAILED: pip install"; rm -rf "$own"; exit 1; }
    PYTHONPATH=$own step "PyTorch" 300 python3 -m torch.distributed.run --nproc-per-node "$gpus" "$here/torch_ranks.py"
    CUDA_VISIBLE_DEVICES='' PYTHONPATH=$own step "PyTorch on the CPU" 300 python3 -m torch.distributed.run --nproc-per-node 3 "$here/torch_ranks.py"
    rm -rf "$own"
    ;;
  hooks)
    if [ "$device" = host ]; then against_torch hooks bench_hooks --rows "$(IFS=,; echo "${*:-7}")"; else
    command -v nvcc >/dev/null || { echo "nvcc is not on the PATH"; exit 3; }
    arch=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
    nvcc -O3 -std=c++17 -arch="$arch" "$here/baselines/hooks.cu" -o "$out/hooks" || { echo "FAILED: nvcc of hooks.cu"; exit 1; }
    # In turn: clocks and neighbours change.
    for round in 1 2; do
      step "hooks in CUDA C++, round $round" 60 "$out/hooks" ${@:-64 2048 32768}
      against_torch "hooks, round $round" bench_hooks --time --rows "$(IFS=,; echo "${*:-64,2048,32768}")"
    done
    fi
    ;;
  baselines)
    command -v nvcc >/dev/null || { echo "nvcc is not on the PATH"; exit 3; }
    arch=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
    for checks in "" -checks; do
      for baseline in copy transpose; do
        nvcc ${checks:+-DCHECKS} -O3 -std=c++17 -arch="$arch" -ptx "$here/baselines/$baseline.cu" -o "$out/$baseline.ptx" || { echo "FAILED: nvcc of $baseline.cu"; exit 1; }
      done
      timeout -k 10 200 "$here/bench_fused" --device cuda --ranks "$gpus" --baseline "$out/copy.ptx,$out/transpose.ptx" --json "$@" \
        > "$out/baselines$checks.jsonl" || { echo "FAILED: bench_fused --baseline"; failed=1; }
      echo "baselines$checks.jsonl"
      cat "$out/baselines$checks.jsonl"
    done
    ;;
  tune)
    timeout -k 10 1200 "$here/cargo-fusewire" fusewire tune --program "$here/tune" --ranks "$gpus" --table "$out/tuning.jsonl" "$@" \
      || { echo "FAILED: tune"; failed=1; }
    ;;
  sanitize)
    command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not on the PATH"; exit 3; }
    export FUSEWIRE_DEADLINE_MS=60000
    for part in hooks:: flagged:: schedules:: copying::sendrecv; do
      step "memcheck of $part" 180 compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 \
        "$here/gpu-suite" --ranks "$gpus" --mode threads --filter "$part"
    done
    ;;
  *) echo "usage: run.sh test | run.sh bench [--json] | run.sh compare OLD_PACKAGE | run.sh collectives | run.sh fused | run.sh hooks | run.sh torch | run.sh baselines | run.sh tune | run.sh sanitize"; exit 2 ;;
esac
without=; [ ${#left_out[@]} -gt 0 ] && without=", ${#left_out[@]} left out"
if [ $failed = 0 ]; then echo "run.sh $command: all passed on $gpus GPUs$without"; else echo "run.sh $command: FAILED on $gpus GPUs"; fi
exit $failed
