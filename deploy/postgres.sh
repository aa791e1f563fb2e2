#!/bin/sh
# Checks that PostgreSQL's programs are installed: make run and make test start servers with them. If they are missing, root
# installs them with make setup, and other users are asked whether to run sudo make setup. Without sudo or a terminal, the
# script prints the command and fails.
set -eu
cd "$(dirname "$0")/.."

for program in "$(command -v postgres || true)" "$(pg_config --bindir 2>/dev/null || true)/postgres" \
	/usr/lib/postgresql/*/bin/postgres /usr/pgsql-*/bin/postgres /usr/lib64/pgsql/*/bin/postgres \
	/usr/libexec/postgresql*/postgres /opt/homebrew/opt/postgresql*/bin/postgres \
	/usr/local/opt/postgresql*/bin/postgres /usr/local/pgsql/bin/postgres; do
	if [ -x "$program" ]; then
		exit 0
	fi
done

if ! command -v apt-get >/dev/null; then
	echo "PostgreSQL 15 or later is missing. Install its server (Fedora: dnf install postgresql-server postgresql-contrib; macOS: brew install postgresql@17)." >&2
	exit 1
fi
if [ "$(id -u)" = 0 ]; then
	exec make --no-print-directory setup
fi
if command -v sudo >/dev/null && [ -t 0 ]; then
	printf 'PostgreSQL is missing. Install it now with sudo make setup? [Y/n] '
	read -r answer
	case $answer in
	"" | [Yy]*) exec sudo make --no-print-directory setup ;;
	esac
fi
echo "PostgreSQL is missing. Install it with: sudo make setup" >&2
exit 1
