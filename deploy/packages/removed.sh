#!/bin/sh
# After the package was removed: with its configuration (purge), or by rpm (0). Secrets, data and users stay.
set -e
case $1 in
purge | 0)
    etc=${DPKG_ROOT-}/etc/ironplane
    [ ! -d "$etc" ] || find "$etc" -depth -type d -empty -delete
    ;;
esac
if [ -z "${DPKG_ROOT-}" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
