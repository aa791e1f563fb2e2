#!/bin/sh
# Makes clients in TypeScript and Python of the API document, into bin/clients, and checks that they compile; and holds
# the document against the rules of others. What is not there is skipped.
set -eu
cd "$(dirname "$0")/../.."
document=docs/reference/openapi.json
out=bin/clients
mkdir -p $out

fetch() {
	npm install --prefix $out --no-save --no-audit --no-fund --loglevel error "$@"
}

if ! command -v npm >/dev/null; then
	echo "skipped: TypeScript, Python, Redocly and Spectral, for want of npm"
elif ! fetch openapi-typescript@7.13.0 typescript@5.9.3 @redocly/cli@2.77.0 @stoplight/spectral-cli@6.16.3 \
	@openapitools/openapi-generator-cli@1.0.18-5.0.0-beta2; then # later ones of this fetch their program elsewhere
	echo "skipped: TypeScript, Python, Redocly and Spectral, which npm cannot fetch"
else
	tools=$out/node_modules/.bin
	$tools/openapi-typescript $document -o $out/ironplane.ts
	$tools/tsc --noEmit --strict --target es2022 --module nodenext $out/ironplane.ts deploy/clients/example.ts
	REDOCLY_TELEMETRY=off $tools/redocly lint --extends=recommended-strict $document
	$tools/spectral lint --ruleset deploy/clients/spectral.yaml --fail-severity hint $document

	if ! command -v java >/dev/null || ! command -v python3 >/dev/null; then
		echo "skipped: Python, for want of java or python3"
	else
		rm -rf $out/python
		node deploy/clients/openapi30.js $document $out/openapi30.json
		$tools/openapi-generator generate -g python -i $out/openapi30.json -o $out/python --package-name ironplane >$out/python.log 2>&1 ||
			{ cat $out/python.log; exit 1; }
		python3 -m compileall -q $out/python/ironplane
		if python3 -c "import certifi, dateutil, six, urllib3" 2>/dev/null; then
			PYTHONPATH=$out/python python3 deploy/clients/example.py
		else
			echo "skipped: deploy/clients/example.py, for want of python3's certifi, dateutil, six and urllib3"
		fi
	fi
fi
