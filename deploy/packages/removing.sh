#!/bin/sh
# Before the package is removed: dpkg says remove, rpm says 0. Another version takes over from what runs by itself.
set -e
case $1 in
remove | 0)
    if [ -z "${DPKG_ROOT-}" ] && [ -d /run/systemd/system ]; then
        systemctl disable --now ironplane.target ironplane-gateway.service ironplane-standalone.service ironplane-site-agent.service
        systemctl disable --now ironplane-service@clients ironplane-service@identity ironplane-service@network ironplane-service@pxe ironplane-service@system
    fi
    ;;
esac
