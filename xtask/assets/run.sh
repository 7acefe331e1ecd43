#!/usr/bin/env bash
# run.sh test   the GPU tests: driver layer, conformance suite with ranks as threads and as processes, the example
# run.sh bench  all-to-all against NCCL (torch), in one run; JSON lines with --json, written to bench-*.jsonl in any case
# run.sh fused  hooks fused into an all-to-all against torch's operations around NCCL's, in one run; written to fused-*.jsonl
# run.sh twins  our kernels against ones written by hand in CUDA C++ and compiled by this machine's nvcc,
#               without and with the checks that ours make; written to twins.jsonl and twins-checks.jsonl
# run.sh tune   a tuning table for these GPUs, written to tuning.jsonl: `FUSEWIRE_TUNING` of any program may name it
# run.sh sanitize  parts of the suite under compute-sanitizer's memcheck, if that is installed
# All use all GPUs; GPUS=n uses fewer.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$here}
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
gpus=${GPUS:-$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | wc -l)}
if [ "$gpus" -lt 1 ]; then echo "no GPU: nvidia-smi lists none"; exit 3; fi
command=${1:-}; shift || true
failed=0
step() { # NAME SECONDS COMMAND..
  local name=$1 limit=$2; shift 2
  echo "=== $name"
  timeout -k 10 "$limit" "$@" || { echo "FAILED: $name (exit $?)"; failed=1; }
}
case $command in
  test)
    if [ "$gpus" -ge 2 ]; then step "driver layer" 240 "$here/driver-selftest" | tail -n 3; fi
    step "suite, ranks as threads" 400 "$here/gpu-suite" --ranks "$gpus" --mode threads "$@"
    step "suite, ranks as processes" 400 "$here/gpu-suite" --ranks "$gpus" --mode processes "$@"
    step "suite over emulated adapters, ranks as threads" 400 "$here/gpu-suite" --ranks "$gpus" --mode threads --over ibgda "$@"
    step "suite over proxies, ranks as processes" 400 "$here/gpu-suite" --ranks "$gpus" --mode processes --over host-ib "$@"
    if [ "$gpus" -ge 4 ]; then step "suite in domains of two GPUs, ranks as processes" 400 "$here/gpu-suite" --ranks "$gpus" --mode processes --over mesh "$@"; fi
    step "example ring over a window" 60 "$here/window_ring" --device cuda --ranks "$gpus"
    step "example halo over a window" 60 "$here/window_halo" --device cuda --ranks "$gpus" --rows 200 --cols 1000
    step "example all-to-all" 120 "$here/all_to_all" --device cuda --ranks "$gpus"
    ;;
  bench)
    json=0; [ "${1:-}" = --json ] && json=1
    timeout -k 10 200 python3 -m torch.distributed.run --nproc-per-node "$gpus" "$here/nccl.py" > "$out/bench-nccl.jsonl" 2> "$out/bench-nccl.log" \
      || { echo "NCCL's side did not run; see $out/bench-nccl.log"; failed=1; }
    timeout -k 10 300 "$here/bench" --device cuda --ranks "$gpus" --json > "$out/bench-fusewire.jsonl" || { echo "FAILED: bench"; failed=1; }
    if [ $json = 1 ]; then cat "$out/bench-nccl.jsonl" "$out/bench-fusewire.jsonl"
    else "$here/bench" --compare "$out/bench-nccl.jsonl" "$out/bench-fusewire.jsonl"; fi
    timeout -k 10 120 "$here/bench_windows" --device cuda --ranks "$gpus" --json > "$out/bench-windows.jsonl" || { echo "FAILED: bench_windows"; failed=1; }
    cat "$out/bench-windows.jsonl"
    ;;
  fused)
    # Neither side beside the other: each has the GPUs to itself.
    timeout -k 10 300 python3 -m torch.distributed.run --nproc-per-node "$gpus" "$here/fused.py" > "$out/fused-torch.jsonl" 2> "$out/fused-torch.log" \
      || { echo "torch's side did not run; see $out/fused-torch.log"; failed=1; }
    timeout -k 10 200 "$here/bench_fused" --device cuda --ranks "$gpus" --json "$@" > "$out/fused-fusewire.jsonl" || { echo "FAILED: bench_fused"; failed=1; }
    python3 "$here/fused.py" --compare "$out/fused-torch.jsonl" "$out/fused-fusewire.jsonl"
    ;;
  twins)
    command -v nvcc >/dev/null || { echo "nvcc is not on the PATH"; exit 3; }
    arch=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
    for checks in "" -checks; do
      for twin in copy transpose; do
        nvcc ${checks:+-DCHECKS} -O3 -std=c++17 -arch="$arch" -ptx "$here/twins/$twin.cu" -o "$out/$twin.ptx" || { echo "FAILED: nvcc of $twin.cu"; exit 1; }
      done
      timeout -k 10 200 "$here/bench_fused" --device cuda --ranks "$gpus" --twin "$out/copy.ptx,$out/transpose.ptx" --json "$@" \
        > "$out/twins$checks.jsonl" || { echo "FAILED: bench_fused --twin"; failed=1; }
      echo "twins$checks.jsonl"
      cat "$out/twins$checks.jsonl"
    done
    ;;
  tune)
    timeout -k 10 500 "$here/cargo-fusewire" fusewire tune --program "$here/tune" --ranks "$gpus" --table "$out/tuning.jsonl" "$@" \
      || { echo "FAILED: tune"; failed=1; }
    ;;
  sanitize)
    command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not on the PATH"; exit 3; }
    export FUSEWIRE_DEADLINE_MS=60000
    for part in hooks:: lines:: schedules:: copying::sendrecv; do
      step "memcheck of $part" 180 compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 \
        "$here/gpu-suite" --ranks "$gpus" --mode threads --filter "$part"
    done
    ;;
  *) echo "usage: run.sh test | run.sh bench [--json] | run.sh fused | run.sh twins | run.sh tune | run.sh sanitize"; exit 2 ;;
esac
if [ $failed = 0 ]; then echo "run.sh $command: all passed on $gpus GPUs"; else echo "run.sh $command: FAILED on $gpus GPUs"; fi
exit $failed
