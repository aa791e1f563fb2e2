#!/bin/sh
# Runs before the package is removed. dpkg passes remove, rpm passes 0. For other arguments, which mean an upgrade, the programs
# go on running: installed.sh restarts them.
set -e
case $1 in
remove | 0)
    if [ -z "${DPKG_ROOT-}" ] && [ -d /run/systemd/system ]; then
        systemctl disable --now ironplane.target ironplane-gateway.service ironplane-standalone.service ironplane-site-agent.service
        systemctl disable --now ironplane-service@clients ironplane-service@identity ironplane-service@network ironplane-service@pxe ironplane-service@system
    fi
    ;;
esac
