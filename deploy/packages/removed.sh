#!/bin/sh
# Runs after the package was removed. The argument is purge if dpkg also removes the configuration, and 0 if rpm removes the
# package. Secrets, data and users stay.
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
