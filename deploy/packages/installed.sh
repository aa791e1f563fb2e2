#!/bin/sh
# After the package was installed, or another version of it. DPKG_ROOT is where, if not in /.
set -e
root=${DPKG_ROOT-}
systemd-sysusers ${root:+--root="$root"} ironplane.conf
systemd-tmpfiles ${root:+--root="$root"} --create ironplane.conf
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl try-restart 'ironplane-*.service'
fi
