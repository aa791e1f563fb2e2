#!/bin/sh
# Makes a client in TypeScript of the API document, into bin/clients, and checks that it compiles; and holds the document
# against the rules of others. What is not there is skipped.
set -eu
cd "$(dirname "$0")/.."
document=docs/reference/openapi.json
out=bin/clients
mkdir -p $out

if ! command -v npm >/dev/null; then
	echo "skipped: TypeScript, Redocly and Spectral, for want of npm"
elif ! npm install --prefix $out --no-save --no-audit --no-fund --loglevel error \
	openapi-typescript@7.13.0 typescript@5.9.3 @redocly/cli@2.77.0 @stoplight/spectral-cli@6.16.3; then
	echo "skipped: TypeScript, Redocly and Spectral, which npm cannot fetch"
else
	tools=$out/node_modules/.bin
	$tools/openapi-typescript $document -o $out/ironplane.ts
	$tools/tsc --noEmit --strict --target es2022 --module nodenext $out/ironplane.ts clients/example.ts
	REDOCLY_TELEMETRY=off $tools/redocly lint --extends=recommended-strict $document
	$tools/spectral lint --ruleset clients/spectral.yaml --fail-severity hint $document
fi
