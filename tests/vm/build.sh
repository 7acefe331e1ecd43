#!/usr/bin/env bash
# Builds the kernel and initramfs of the soft-RoCE test VM (see run.sh).
#
#   build.sh               build into $FUSEWIRE_VM_DIR (default ~/.cache/fusewire/vm), if missing or stale
#   build.sh --deps        first install what building and running need, where it is missing
#
# Takes Debian's own kernel *package* apart (apt-get download, dpkg-deb); nothing of it is installed here.
# Exit code 77: this machine cannot have the VM; the reason is the last line on stderr.
#
#   vmlinux        uncompressed kernel ELF (booted through PVH: no decompressor under emulation)
#   modules/       the package's lib/modules tree (bound to /lib/modules in the VM)
#   initrd.cpio    busybox, the boot modules, init
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=${FUSEWIRE_VM_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/fusewire/vm}
cannot() { echo "$*" >&2; exit 77; }
deps=0
for a in "$@"; do
    case $a in
        --deps) deps=1 ;;
        *) echo "usage: $0 [--deps]" >&2; exit 2 ;;
    esac
done
[[ $(uname -m) == x86_64 ]] || cannot "the VM is for x86-64 machines"

# qemu-system-x86 runs it, busybox-static and cpio make the initramfs, kmod orders the modules; iproute2 and
# ibverbs-providers are used inside (the VM sees this machine's root file system, read-only). Not rdma-core: that is
# only daemons, and it pulls in udev.
missing() {
    local p
    for p in busybox-static cpio kmod xz-utils zstd iproute2 ibverbs-providers; do
        [[ $(dpkg-query -W -f '${Status}' "$p" 2>/dev/null) == *" installed" ]] || echo "$p"
    done
}
need=$(command -v dpkg-query >/dev/null && missing || true)
qemu=$(command -v qemu-system-x86_64 || true)
if [[ -n $need || -z $qemu ]]; then
    command -v apt-get >/dev/null || cannot "QEMU's system emulator and busybox are missing, and there is no apt-get to install them"
    ((deps)) || cannot "packages are missing: $need ${qemu:-qemu-system-x86}; build.sh --deps installs them"
    [[ $(id -u) == 0 ]] || cannot "packages are missing and only root can install them: $need ${qemu:-qemu-system-x86}"
    export DEBIAN_FRONTEND=noninteractive
    exec 7>&1 1>&2
    apt-get update -qq || cannot "apt-get update failed: no package archive is in reach"
    # shellcheck disable=SC2086
    [[ -z $need ]] || apt-get install -y -qq --no-install-recommends $need >/dev/null || cannot "apt-get could not install: $need"
    if [[ -z $qemu ]]; then
        # A machine with qemu-utils from backports would lose it to the stable qemu-system-x86: take that from
        # backports too, through a source list of our own.
        opt=() t=
        if dpkg-query -W -f '${Version}' qemu-utils 2>/dev/null | grep -q bpo; then
            . /etc/os-release
            t=$(mktemp -d)
            mkdir -p "$t/lists/partial"
            apt-get indextargets --format '$(REPO_URI) $(RELEASE)' | sort -u |
                awk -v c="$VERSION_CODENAME" '
                    $2 == c { print "deb " $1 " " c " main"; print "deb " $1 " " c "-backports main" }
                    $2 == c "-security" { print "deb " $1 " " $2 " main" }' |
                sed 's#^deb #deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] #' >"$t/list"
            opt=(-o "Dir::Etc::SourceList=$t/list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$t/lists")
            apt-get "${opt[@]}" update -qq || cannot "apt-get update failed for backports"
            opt+=(-t "$VERSION_CODENAME-backports")
        fi
        apt-get ${opt[@]+"${opt[@]}"} install -y -qq --no-install-recommends qemu-system-x86 >/dev/null ||
            cannot "apt-get could not install qemu-system-x86"
        [[ -z $t ]] || rm -rf "$t"
    fi
    exec 1>&7 7>&-
fi

# Modules the init loads, in dependency order after resolution.
# (crc32_generic: rdma_rxe asks the crypto API for "crc32" at link creation.)
boot_mods=(crc32_generic virtio_pci virtio_console 9p 9pnet_virtio overlay veth ib_uverbs rdma_rxe sch_netem)

stamp=$(cat "${BASH_SOURCE[0]}" "$here/init" "$here/stage2" | sha256sum | cut -d' ' -f1)
mkdir -p "$dir"
exec 8>"$dir/lock"
flock 8 # two runs at once: one builds
if [[ -f $dir/stamp && $(cat "$dir/stamp") == "$stamp" ]]; then
    exit 0
fi
work=$(mktemp -d "$dir/build.XXXXXX")
trap 'rm -rf "$work"' EXIT

# 1. The kernel package that linux-image-amd64 points at today. The cloud flavour lacks rdma_rxe.ko and 9p.ko, so
#    it must be the generic one.
pkg=$(apt-cache depends --important linux-image-amd64 2>/dev/null |
      sed -n 's/^ *Depends: \(linux-image-[0-9].*-amd64\)$/\1/p')
if [[ -z $pkg ]]; then
    apt-get update -qq >&2 || cannot "apt-get update failed: no package archive is in reach"
    pkg=$(apt-cache depends --important linux-image-amd64 2>/dev/null |
          sed -n 's/^ *Depends: \(linux-image-[0-9].*-amd64\)$/\1/p')
fi
[[ -n $pkg ]] || cannot "apt knows no linux-image-amd64: the VM's kernel is Debian's"
(cd "$work" && apt-get download -qq "$pkg" 2>"$work/apt.err") ||
    { cat "$work/apt.err" >&2; cannot "the kernel package $pkg could not be downloaded"; }
mkdir "$work/pkg"
dpkg-deb --fsys-tarfile "$work"/linux-image-*.deb |
    tar -x -C "$work/pkg" --exclude='./lib/modules/*/kernel/sound' \
        --exclude='./lib/modules/*/kernel/drivers/'{gpu,media,staging,iio,usb,scsi,hwmon,net/wireless,net/ethernet} \
        ./boot ./lib/modules
ver=$(basename "$work"/pkg/lib/modules/*)

# 2. bzImage -> ELF vmlinux.  Boot protocol header: setup_sects at 0x1f1 (u8),
#    payload_offset at 0x248 and payload_length at 0x24c (u32), the offset counted from
#    the end of the (setup_sects + 1) * 512 bytes of setup code.
bz=$work/pkg/boot/vmlinuz-$ver
u8()  { od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' '; }
u32() { od -An -tu4 -j "$2" -N 4 "$1" | tr -d ' '; }
off=$(( ($(u8 "$bz" 0x1f1) + 1) * 512 + $(u32 "$bz" 0x248) ))
len=$(u32 "$bz" 0x24c)
dd if="$bz" of="$work/payload" bs=64K skip="$off" count="$len" iflag=skip_bytes,count_bytes status=none
case $(od -An -tx1 -N 4 "$work/payload" | tr -d ' ') in
    fd377a58) xz -dc --single-stream <"$work/payload" >"$work/vmlinux" || true ;;
    28b52ffd) # 4 bytes of length follow the frame: zstd complains after writing all
              zstd -dcq <"$work/payload" >"$work/vmlinux" 2>/dev/null || true ;;
    *) echo "build.sh: unknown kernel compression" >&2; exit 1 ;;
esac
[[ $(head -c 4 "$work/vmlinux") == $'\x7fELF' ]] || { echo "build.sh: no ELF in $bz" >&2; exit 1; }

# 3. Initramfs: busybox, init, the boot modules and the order to insmod them in.
depmod -b "$work/pkg" "$ver"
root=$work/root
mkdir -p "$root"/{bin,dev,proc,sys,mnt,mod}
cp /bin/busybox "$root/bin/busybox"
for m in "${boot_mods[@]}"; do
    modprobe -d "$work/pkg" -S "$ver" --show-depends "$m"
done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' >"$work/order"
while read -r ko; do
    name=$(basename "$ko" .xz)
    case $ko in
        *.xz) xz -dc "$ko" >"$root/mod/$name" ;;
        *) cp "$ko" "$root/mod/$name" ;;
    esac
    echo "$name"
done <"$work/order" >"$root/mod/order"
install -m 755 "$here/init" "$root/init"
install -m 644 "$here/stage2" "$root/stage2"
(cd "$root" && find . -print0 | sort -z | cpio --null -o -H newc --quiet) >"$work/initrd.cpio"

rm -rf "$dir/modules"
mkdir "$dir/modules"
mv "$work/pkg/lib/modules/$ver" "$dir/modules/$ver"
mv "$work/vmlinux" "$work/initrd.cpio" "$dir/"
echo "$ver" >"$dir/version"
echo "$stamp" >"$dir/stamp"
echo "build.sh: $pkg -> $dir ($(du -sh "$dir" | cut -f1))" >&2
