#!/bin/sh
# Builds the console's pages again and fails if they differ from the committed ones. It is skipped where npm or its registry is missing.
set -eu
cd "$(dirname "$0")/web"

if ! command -v npm >/dev/null; then
	echo "skipped: the console was not built again, because npm is not installed"
	exit 0
fi
if ! npm ci --no-audit --no-fund --loglevel error; then
	echo "skipped: the console was not built again, because npm cannot fetch its packages"
	exit 0
fi
npm run --silent build -- --logLevel warn
if [ -n "$(git status --porcelain ../dist)" ]; then
	git status --short ../dist
	echo "the files above differ from what web builds: run 'make console' and commit them" >&2
	exit 1
fi
echo "the console's files are those that web builds"
