#!/bin/sh
# Runs after the package was installed or upgraded. DPKG_ROOT is the root folder, if it is not /.
set -e
root=${DPKG_ROOT-}
systemd-sysusers ${root:+--root="$root"} ironplane.conf
systemd-tmpfiles ${root:+--root="$root"} --create ironplane.conf
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl try-restart 'ironplane-*.service'
fi
