#!/bin/sh -eu
# Builds the system in memory: deploy/rescue/build.sh FOLDER makes vmlinuz, initrd, an ISO with both, rescue.iso, and packages.txt there. It
# needs root, Go, and Debian's packages mmdebstrap, cpio, zstd and xorriso. KERNEL is the kernel's package, ADD names more packages, separated by commas, and MIRROR is the mirror.
# SOURCE_DATE_EPOCH is the latest time of a file in it: the default is the time of the last commit.
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
: "${SOURCE_DATE_EPOCH:=$(git -C "$here" log -1 --format=%ct 2>/dev/null || echo 0)}"
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
system=$work/system
umask 022

INITRD=No mmdebstrap --quiet --variant=minbase --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' \
  --include="${KERNEL:-linux-image-amd64},systemd-sysv,systemd-resolved,udev,dbus,iproute2,openssh-server,curl,zstd,gdisk,mdadm,lvm2,e2fsprogs,dosfstools,mtools,nvme-cli${ADD:+,$ADD}" \
  bookworm "$system" ${MIRROR:+"$MIRROR"}

cp -R "$here/system/." "$system"
(cd "$here" && CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$system/usr/local/sbin/ironplane-disks" ./disks)
chroot "$system" dpkg-query -W > "$work/packages.txt"
chroot "$system" systemctl --quiet enable systemd-networkd ironplane
chroot "$system" systemctl --quiet disable ssh
rm -f "$system"/etc/ssh/ssh_host_*
: > "$system/etc/machine-id"
rm -rf "$system"/var/log/* "$system"/var/cache/* "$system"/var/lib/apt/lists/*
ln -s sbin/init "$system/init"
mkdir "$work/iso"
cp "$system"/boot/vmlinuz-* "$work/iso/vmlinuz"
rm -r "$system/boot"

find "$system" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" '{}' +
(cd "$system" && find . -print0 | LC_ALL=C sort -z | cpio --quiet --null --reproducible -o -H newc) | zstd -q -T0 > "$work/iso/initrd"
touch --date="@$SOURCE_DATE_EPOCH" "$work/iso/vmlinuz" "$work/iso/initrd" "$work/iso"
xorriso -as mkisofs -quiet -R -V IRONPLANE_RESCUE -o "$work/rescue.iso" "$work/iso" 2> "$work/xorriso.log" || { cat "$work/xorriso.log" >&2; exit 1; }
mv "$work/iso/vmlinuz" "$work/iso/initrd" "$work/rescue.iso" "$work/packages.txt" "$folder"
