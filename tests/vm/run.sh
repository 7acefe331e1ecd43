#!/usr/bin/env bash
# Runs a command in a small VM that has two soft-RoCE devices (rxe0 10.77.0.1, rxe1 10.77.0.2), under QEMU's
# software emulation: real libibverbs, real packets, no RDMA hardware.
#
#   run.sh [options] COMMAND [ARG...]
#     -t SECONDS    limit for the whole run (default 150); exit code 124 past it
#     -w DIR        share DIR writable at the same path (repeatable)
#     -e NAME=VAL   set in the command's environment (repeatable)
#     -m MIB        memory (default 1024)      -c N   CPUs (default 2)
#     -v            kernel log to stderr when done
#
# The command sees the host's root file system (read-only below, a tmpfs above: its other
# writes vanish), runs in the caller's working directory as root, gets no stdin.  Its
# stdout and stderr come out, merged, on stdout as it runs; its exit code is this
# script's.  125: the VM did not run the command to its end (kernel log on stderr).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=${FUSEWIRE_VM_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/fusewire/vm}
limit=150 mem=1024 cpus=2 verbose=0 shares=() envs=()
while getopts t:w:e:m:c:v o; do
    case $o in
        t) limit=$OPTARG ;;
        w) shares+=("$(realpath "$OPTARG")") ;;
        e) envs+=("$OPTARG") ;;
        m) mem=$OPTARG ;;
        c) cpus=$OPTARG ;;
        v) verbose=1 ;;
        *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
(($#)) || { echo "usage: $0 [options] COMMAND [ARG...]" >&2; exit 2; }

"$here/build.sh"
run=$(mktemp -d "${TMPDIR:-/tmp}/fusewire-vm.XXXXXX")
qpid= cpid=
cleanup() {
    [[ -z $qpid ]] || kill "$qpid" 2>/dev/null || true
    [[ -z $cpid ]] || kill "$cpid" 2>/dev/null || true
    rm -rf "$run"
}
trap cleanup EXIT
mkdir "$run/share"
{
    printf 'export HOME=%q TERM=dumb PATH=%q\n' "$HOME" "$PATH"
    for e in ${envs[@]+"${envs[@]}"}; do printf 'export %q\n' "$e"; done
    printf 'cd %q || exit 127\n' "$PWD"
    printf 'exec'
    printf ' %q' "$@"
    printf '\n'
} >"$run/share/cmd"
: >"$run/share/shares"
share_args=()
for i in ${shares[@]+"${!shares[@]}"}; do
    printf '%s\n' "${shares[i]}" >>"$run/share/shares"
    share_args+=(-virtfs "local,path=${shares[i]},mount_tag=share$i,security_model=none,multidevs=remap")
done

# The output comes through a FIFO, read as the VM writes.  fd 9 holds it open both ways, so
# that nobody waits in open(); with it closed and QEMU gone, cat sees the end.
mkfifo "$run/out"
exec 9<>"$run/out"
cat "$run/out" 9>&- &
cpid=$!
# A processor without AVX: wide registers are slow to emulate.
timeout -k 5 "$limit" qemu-system-x86_64 \
    -accel tcg,thread=multi -machine pc -cpu Nehalem -smp "$cpus" -m "$mem" \
    -nodefaults -no-user-config -display none -no-reboot \
    -kernel "$dir/vmlinux" -initrd "$dir/initrd.cpio" \
    -append "console=ttyS0 loglevel=6 panic=-1 oops=panic mitigations=off nokaslr random.trust_cpu=on audit=0" \
    -serial "file:$run/klog" \
    -chardev "file,id=out,path=$run/out" \
    -device virtio-serial-pci -device virtserialport,chardev=out,name=vm.out \
    -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
    -virtfs "local,path=$run/share,mount_tag=run,security_model=none" \
    -virtfs "local,path=$dir/modules,mount_tag=modules,security_model=none,readonly=on" \
    ${share_args[@]+"${share_args[@]}"} \
    </dev/null >"$run/qemu.err" 2>&1 9>&- &
qpid=$!
q=0
wait "$qpid" || q=$?
qpid=
exec 9>&-
wait "$cpid" || true
cpid=

((!verbose)) || cat "$run/klog" >&2
if [[ -f $run/share/rc ]]; then
    exit "$(cat "$run/share/rc")"
fi
cat "$run/qemu.err" >&2
((verbose)) || tail -n 40 "$run/klog" >&2 || true
if ((q == 124 || q == 137)); then
    echo "run.sh: over ${limit}s, ended" >&2
    exit 124
fi
echo "run.sh: the VM ended without an exit code (QEMU: $q)" >&2
exit 125
