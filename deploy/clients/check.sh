#!/bin/sh
# Generates clients in Go, TypeScript and Python from the API document in bin/clients, with the defaults of the generators, and checks
# that they compile. It also lints the document with Redocly and Spectral. Steps with missing tools are skipped.
set -eu
cd "$(dirname "$0")/../.."
document=docs/reference/openapi.json
out=bin/clients
older=$out/openapi-3.0.json
mkdir -p $out/go
go run ./deploy/clients/older <$document >$older

# Not the client in pkg/client, but what those get who use a generator of their own.
go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.5.1 -package ironplane -o $out/go/ironplane.go $older
(cd $out/go && rm -f go.mod go.sum && export GOWORK=off && go mod init example.com/ironplane && go mod tidy && go vet .)

fetch() {
	npm install --prefix $out --no-save --no-audit --no-fund --loglevel error "$@"
}

if ! command -v npm >/dev/null; then
	echo "skipped: TypeScript, Python, Redocly and Spectral, because npm is not installed"
elif ! fetch openapi-typescript@7.13.0 typescript@5.9.3 @redocly/cli@2.77.0 @stoplight/spectral-cli@6.16.3 \
	@openapitools/openapi-generator-cli@1.0.18-5.0.0-beta2; then # later versions of the generator's package download their program from elsewhere
	echo "skipped: TypeScript, Python, Redocly and Spectral, because npm cannot fetch them"
else
	tools=$out/node_modules/.bin
	$tools/openapi-typescript $document -o $out/ironplane.ts
	$tools/tsc --noEmit --strict --target es2022 --module nodenext $out/ironplane.ts deploy/clients/example.ts
	# Redocly does not know the references in x-answer, which says what an import by CSV answers.
	REDOCLY_TELEMETRY=off $tools/redocly lint --extends=recommended-strict --skip-rule=no-unused-components $document
	$tools/spectral lint --ruleset deploy/clients/spectral.yaml --fail-severity hint $document

	if ! command -v java >/dev/null || ! command -v python3 >/dev/null; then
		echo "skipped: Python, because java or python3 is not installed"
	else
		rm -rf $out/python
		$tools/openapi-generator generate -g python -i $older -o $out/python --package-name ironplane >$out/python.log 2>&1 ||
			{ cat $out/python.log; exit 1; }
		python3 -m compileall -q $out/python/ironplane
		if python3 -c "import certifi, dateutil, six, urllib3" 2>/dev/null; then
			PYTHONPATH=$out/python python3 deploy/clients/example.py
		else
			echo "skipped: deploy/clients/example.py, because python3's certifi, dateutil, six or urllib3 is not installed"
		fi
	fi
fi
