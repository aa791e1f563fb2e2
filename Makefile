# Every target works in a fresh clone. `make help` lists all targets.
MODULES := $(shell sed -n 's|^	\./||p' go.work)
PACKAGES := $(addsuffix /...,$(addprefix ./,$(MODULES)))
PROGRAMS := ./deploy/standalone ./deploy/split ./deploy/setup ./deploy/cli/ironplane ./deploy/license ./deploy/ironplaned ./gateway/cmd/gateway $(wildcard ./services/*/cmd/*)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.7.0

# All builds use the same flags, so that nothing is compiled twice. Only the race detector needs cgo.
export GOFLAGS := -trimpath
export CGO_ENABLED := 0

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 20

.PHONY: postgres
postgres:
	@deploy/postgres.sh

.PHONY: run
run: $(if $(DATABASE_URL),,postgres) build ## build and start all of Ironplane in one process; it may reach the site agent of make machine
	@IRONPLANE_ALLOWED_NETWORKS="$${IRONPLANE_ALLOWED_NETWORKS-100.64.0.0/10}" exec bin/standalone

.PHONY: run-split
run-split: $(if $(DATABASE_URL),,postgres) build ## build and start the gateway and the services, each in its own process
	@exec bin/split

.PHONY: admin-key
admin-key: build ## create a new API key for the first admin, if the last one is lost
	@exec bin/standalone admin-key

.PHONY: build
build: ## build the programs into bin/
	@mkdir -p bin
	go build -ldflags "-X $(VERSIONED)=$$(git describe --tags --always --dirty 2>/dev/null)" -o bin/ $(PROGRAMS)

VERSIONED := github.com/ironplane/ironplane/pkg/runtime/process.version

.PHONY: packages
packages: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)
packages: ## build a .deb and an .rpm in bin/packages, with the commit's time
	@rm -rf bin/package bin/packages bin/man bin/completion && mkdir -p bin/package bin/packages bin/completion
	go build -ldflags "-s -w -X $(VERSIONED)=$$(git describe --tags --always --dirty 2>/dev/null)" -o bin/package/ ./deploy/ironplaned ./deploy/cli/ironplane ./services/pxe/cmd/site-agent
	go run ./deploy/cli/manual man bin/man
	@for shell in bash zsh fish; do bin/package/ironplane completion $$shell >bin/completion/$$shell || exit 1; done
	@for packager in deb rpm; do \
		VERSION=$(PACKAGE_VERSION) ARCH=$$(go env GOARCH) go run $(NFPM) package --config deploy/packages/nfpm.yaml --packager $$packager --target bin/packages/ || exit 1; done

.PHONY: release
release: ## build a release in bin/release from a commit with a tag such as v1.2.0, signed with the GnuPG key KEY: apt repository, programs, checksums, SBOM, notes
	go run ./deploy/release -key "$(KEY)"

.PHONY: test-packages
test-packages: packages ## build the packages and test them: with dpkg, and with systemd in Docker, if installed
	go test -v -count 1 ./deploy/packages -packages $(CURDIR)/bin/packages

.PHONY: chart
chart: ## lint the Helm chart for Kubernetes, render it into bin/chart, and compare it with the schemas of Kubernetes and with compose
	go run $(HELM) lint --strict --quiet --kube-version $(KUBERNETES) deploy/chart
	@mkdir -p bin/chart
	go run $(HELM) template ironplane deploy/chart --kube-version $(KUBERNETES) >bin/chart/default.yaml
	go run $(HELM) template ironplane deploy/chart --kube-version $(KUBERNETES) --set certManager.enabled=true >bin/chart/cert-manager.yaml
	go test -count=1 ./deploy/chart

.PHONY: operate-chart
operate-chart: ## build an API server of Kubernetes into bin/kubernetes (half an hour on two cores), and install, upgrade and remove the chart there
	deploy/chart/kubernetes.sh $(KUBERNETES) $(ETCD) bin/kubernetes
	go test -v -count=1 ./deploy/chart -run TestAPIServer

ETCD := v3.6.5
HELM := helm.sh/helm/v3/cmd/helm@v3.22.0
KUBERNETES := v1.36.3
CERT_MANAGER := v1.18.2

.PHONY: terraform-provider
terraform-provider: ## build the provider for Terraform and OpenTofu into bin/terraform
	@mkdir -p bin/terraform
	go build -o bin/terraform/terraform-provider-ironplane ./deploy/terraform-provider

.PHONY: tofu
tofu: ## build OpenTofu into bin/tofu, with which the provider is tested: about half an hour on two cores
	@test -x bin/tofu || { rm -rf bin/opentofu && mkdir -p bin && \
		cp -R "$$(go mod download -json $(OPENTOFU) | sed -n 's/^.*"Dir": "\(.*\)".*$$/\1/p')" bin/opentofu && chmod -R u+w bin/opentofu && \
		(cd bin/opentofu && GOWORK=off go build -o ../tofu ./cmd/tofu) && rm -rf bin/opentofu; }

OPENTOFU := github.com/opentofu/opentofu@v1.12.6

.PHONY: rescue
rescue: ## as root, build the system in memory and its packages ironplane-rescue in bin/rescue; make netboot-setup installs the tools
	@mkdir -p bin/rescue && rm -f bin/rescue/*
	$(if $(ADD),ADD=$(ADD)) $(if $(KERNEL),KERNEL=$(KERNEL)) $(if $(MIRROR),MIRROR=$(MIRROR)) deploy/rescue/build.sh bin/rescue
	@for packager in deb rpm; do \
		VERSION=$(PACKAGE_VERSION) go run $(NFPM) package --config deploy/rescue/nfpm.yaml --packager $$packager --target bin/rescue/ || exit 1; done

# The newest tag, with the number of commits since; without a tag the commit's time.
PACKAGE_VERSION = $$(git describe --tags --match 'v[0-9]*' 2>/dev/null | sed 's/^v//; s/-/+/g' | grep . || git log -1 --format=0.0.%ct+%h)
NFPM := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2

# Runs tests, and prints the ten slowest tests and the used CPU time. In CI it runs a failed test once more.
TEST := go run ./deploy/internal/testrun $(if $(CI),-retry) -- -shuffle=on -timeout 40m

# Only make test-all runs these: split and standalone stop, kill and restore whole installations; packages installs packages; chart
# builds Helm; alike has a database for each comparison; browser needs Chromium, netboot needs root and QEMU; revocation and ssl wait for
# time-outs; measure measures. So it is with terraform-provider, a module of its own, which starts Terraform hundreds of times.
LONG := $(addprefix github.com/ironplane/ironplane/deploy/,split standalone packages chart internal/alike internal/browser \
	internal/netboot internal/revocation internal/ssl measure/%)

TESTED = $(filter-out ./deploy/%,$(PACKAGES)) $(filter-out $(LONG),$(shell go list ./deploy/...))

.PHONY: test
test: postgres ## run the unit tests, the tests of services, and the tests of the whole product: about five minutes on two cores
	$(TEST) $(TESTED)

.PHONY: test-all
test-all: postgres ## run all tests; those of pkg, gateway and services with the race detector if a C compiler is installed
	$(if $(RACE),CGO_ENABLED=1) $(TEST) $(RACE) $(filter-out ./deploy/%,$(PACKAGES))
	$(TEST) $(filter ./deploy/%,$(PACKAGES))

.PHONY: test-alone
test-alone: ## run all tests of each module with only its own go.mod, without go.work
	@for m in $(MODULES); do (cd $$m && GOWORK=off go test -timeout 20m ./...) || exit 1; done

.PHONY: test-containers
test-containers: ## run the tests that need Docker; FULL=-full measures for longer
	$(TEST) -shuffle=off -count=1 -timeout 30m -tags containers ./deploy/containers $(FULL)

.PHONY: revocation
revocation: ## revoke keys in every way, with every kind of failure, and print how long it took
	go test -v -timeout 30m -parallel 2 ./deploy/internal/revocation -full

.PHONY: timing
timing: ## compare response times for known and unknown names at sign-ins and password resets; needs an idle machine
	go test -v -count 1 -timeout 60m ./deploy/internal/alike -run TestTimes -full

.PHONY: guessing
guessing: ## guess 100,000 keys, codes and passwords from as many addresses, and print memory use and the delay of other callers
	go test -v -count 1 -timeout 60m ./deploy/split -run TestFloodOfGuesses -full

.PHONY: storm
storm: ## allocate and release addresses with 200 callers while the network service is killed repeatedly
	go test -v -timeout 30m ./deploy/split -run TestAllocationStorm -full

.PHONY: crash
crash: ## change items at random while processes are killed 200 times and four schemas restored; compare items, log, mails and webhooks
	go test -v -timeout 60m ./deploy/split -run TestCrash -full

.PHONY: deletions
deletions: ## refer to items while they are deleted, with 64 callers, with and without killed processes
	go test -v -timeout 60m ./deploy/internal/product -run 'While.*IsDeleted' -full
	go test -v -timeout 90m ./deploy/split -run TestReferencesToDeletedItems -full

.PHONY: sites
sites: ## sync 500 files between agents while processes are killed, a disk is full and an agent sends wrong data; compare the trees: 10 minutes
	go test -v -timeout 30m ./deploy/split -run TestSiteAgents -full

.PHONY: netboot
netboot: ## as root, install machines (QEMU) from a site agent; FULL=1 adds failures, the system in memory, Debian's installer, twenty machines at once, and Ubuntu's with ISO=…
	$(if $(ISO),ISO=$(ISO)) $(TEST) -count=1 -timeout 6h -parallel 4 ./deploy/internal/netboot -machines $(if $(FULL),-full)

.PHONY: netboot-setup
netboot-setup: ## as root, install the tools for make netboot and make machine on Debian or Ubuntu
	-apt-get update
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 $(NETBOOT_PACKAGES)

NETBOOT_PACKAGES := qemu-system-x86 iproute2 grub-common dosfstools mtools cpio busybox-static ipxe ipxe-qemu ovmf grub-pc-bin grub-efi-amd64-bin mmdebstrap zstd openssh-client radvd isc-dhcp-relay dnsmasq-base debian-archive-keyring xorriso qemu-utils shim-signed grub-efi-amd64-signed

.PHONY: machine
machine: ## as root, while make run runs, install a machine (QEMU) over the API, and show its console: make machine KEY=ip_…
	@KEY=$(KEY) go test -v -count 1 -timeout 1h ./deploy/internal/netboot -run TestDemonstration -machines

.PHONY: product
product: ## run the product's tests with the race detector, over mTLS and in one process
	$(if $(RACE),CGO_ENABLED=1) go test $(RACE) -timeout 60m ./deploy/internal/product -full

.PHONY: restore
restore: ## back up and restore in every way of docs/operate/backup.md, while callers change items
	go test -v -timeout 30m ./deploy/standalone -run 'TestRestore|TestPointInTime' -full

.PHONY: upgrade
upgrade: ## upgrade the last release under load, downgrade, upgrade again, and compare the schemas with a new installation's
	go test -v -timeout 30m ./deploy/split -run TestUpgrade -full

.PHONY: operate
operate: ## run three of each process on a default PostgreSQL, put PgBouncer in between, and replace processes under load; print requests, failures, outages and connections
	@mkdir -p bin; echo "| Event | Requests | Failed or told to try again | Longest outage | Connections |"; echo "|---|---|---|---|---|"
	@go test -v -count 1 -timeout 60m ./deploy/split -run 'TestThreeOfEach|TestPgBouncer|TestReplacedInTurn' -full > bin/operate.log 2>&1; status=$$?; \
		sed -n 's/^ *[a-z_]*test.go:[0-9]*: \(| .*\)/\1/p; /^ *[a-z_]*test.go:.* is not installed/p; /^--- FAIL/p' bin/operate.log; exit $$status

.PHONY: replace
replace: ## replace two instances of each process in turn under 150 requests a second; none may fail
	go test -v -timeout 30m ./deploy/split -run TestReplacedInTurn -full

# The long tests, each with its deadline in minutes. Run those that test the code you changed.
NIGHT := crash:60 storm:30 revocation:40 restore:30 upgrade:30 replace:30 deletions:150 sites:30 guessing:60 timing:60 clients:20 operate-chart:90 \
	test-packages:30 netboot:360

.PHONY: night
night: ## run all long tests in turn, for some hours, and print a table: target, seconds, result, measurement
	@deploy/night.sh $(NIGHT)

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (30s)
	@grep -rnoE --include='*_test.go' '^func Fuzz[A-Za-z]*' . | sed 's|/[^/]*_test.go:[0-9]*:func | |' | while read -r package target; do \
		go test $$package -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) || exit 1; done

FUZZTIME := 30s

# The race detector needs cgo.
RACE := $(shell command -v $$(go env CC) >/dev/null 2>&1 && echo -race)

.PHONY: lint
lint: ## check format, vet, staticcheck, language and sizes, and that modules and generated files are up to date
	@test -z "$$(gofmt -l .)" || { echo "not formatted:"; gofmt -l .; exit 1; }
	go test -count=1 ./deploy/internal/arch
	go vet -tags containers $(PACKAGES)
	go run $(STATICCHECK) -tags containers $(PACKAGES)
	go work sync
	@for m in $(MODULES); do \
		(cd $$m && GOWORK=off go mod tidy -diff && GOWORK=off go build ./...) || { echo "$$m is not tidy, or does not build alone: run 'make tidy'"; exit 1; }; done
	@$(MAKE) --no-print-directory go-client && git diff --exit-code -- docs/reference pkg/client gateway/console/*.gen.json deploy/terraform-provider/docs || { echo "make go-client changed the files above: commit them"; exit 1; }
	@$(MAKE) --no-print-directory schema && git diff --exit-code -- '*schema.sql' || { echo "make schema changed the files above: commit them"; exit 1; }
	@git diff --exit-code -- '*go.mod' '*go.sum' go.work go.work.sum || { echo "go work sync changed the files above: commit them"; exit 1; }

.PHONY: tidy
tidy: ## update the requirements of all modules
	go work sync
	@for m in $(MODULES); do (cd $$m && GOWORK=off go mod tidy) || exit 1; done

.PHONY: services
services: ## write pkg/catalog, and add missing services to the files of compose, of the package and of the docs
	go run ./deploy/services .

.PHONY: openapi
openapi: ## write docs/reference: openapi.json, errors.md, log.md, policy.md, variables.md, email-variables.md and pxe-variables.md; and the console's templates.gen.json
	go run ./deploy/document docs/reference gateway/console/templates.gen.json

.PHONY: schema
schema: postgres ## write each service's schema.sql from the catalogue of a new installation
	go run ./deploy/schema .

.PHONY: go-client
go-client: openapi ## write from the API document: the Go client in pkg/client, the table of operations, and the pages of the provider for Terraform
	go run ./deploy/sdk docs/reference/openapi.json pkg/client
	go run ./deploy/terraform-provider/document operations | go run ./deploy/cli/manual page docs/reference/commands.md
	go run ./deploy/cli/manual console gateway/console/commands.gen.json
	@mkdir -p bin && go run ./deploy/terraform-provider/document schema >bin/terraform-schema.json
	cd deploy/terraform-provider && go run $(TFPLUGINDOCS) generate --provider-name ironplane --providers-schema ../../bin/terraform-schema.json >/dev/null
	@git add --intent-to-add pkg/client deploy/terraform-provider/docs 2>/dev/null || true # so that git diff shows the file of a new resource

TFPLUGINDOCS := github.com/hashicorp/terraform-plugin-docs/cmd/tfplugindocs@v0.25.0

.PHONY: console
console: ## check and build the console's pages (gateway/console/dist) with npm
	cd gateway/console/web && npm ci --no-audit --no-fund --loglevel error && npm run --silent build -- --logLevel warn

.PHONY: console-check
console-check: ## build the console again, if npm is installed and reaches its registry, and compare it with the committed files
	@gateway/console/check.sh

.PHONY: screenshots
screenshots: postgres ## take pictures of the console's pages in bin/screenshots, with Chromium, and replace the three in docs/start: commit these
	go test -v -count 1 ./deploy/internal/browser -run TestScreenshots -screenshots $(CURDIR)/bin/screenshots
	@for page in address-space client template; do cp bin/screenshots/$$page-light.png docs/start/$$page.png || exit 1; done

.PHONY: clients
clients: go-client ## generate clients in Go, TypeScript and Python, and lint the API document with Redocly and Spectral
	@deploy/clients/check.sh

.PHONY: bench
bench: ## compare speed: API with pgbench and nginx, large with small installations, lists with COPY, imports of address plans, site agents with rsync, TFTP servers, nginx and dnsmasq; FULL=-full has a file of 4 GiB
	go run ./deploy/measure/bench
	go test -run '^$$' -bench . -benchmem ./gateway/... ./pkg/runtime/peers ./pkg/rest/route
	go test -run '^$$' -bench Answers -benchtime 25x ./deploy/measure/scale -entities 200000
	go test -run '^$$' -bench List -benchtime 5x ./deploy/measure/scale -entities 200000
	go test -run '^$$' -bench 'Mails|Webhooks' -benchtime 10000x ./services/system
	go test -run '^$$' -bench Import -benchtime 1x ./deploy/cli/importer
	go test -run '^$$' -bench . -benchtime 3x -timeout 1h ./deploy/measure/files $(FULL)

.PHONY: idle
idle: build ## measure an idle installation, and the delay until the log, webhooks and settings see a change; PROGRAM=bin/split measures separate processes
	go run ./deploy/measure/idle -program $(PROGRAM)

PROGRAM := bin/standalone

.PHONY: scale
scale: ## measure lists and memory with 10 million IP entities (ENTITIES=…), and with a driver of 512 MiB: about an hour
	go test ./deploy/measure/scale -v -count 1 -timeout 3h -entities $(ENTITIES)
	go test ./deploy/split -v -count 1 -timeout 1h -run TestMemoryOf -full

ENTITIES := 10000000

.PHONY: setup
setup: ## as root, install PostgreSQL, Redis and a C compiler on Debian or Ubuntu
	apt-get update
	apt-get install -y --no-install-recommends postgresql redis-server gcc libc6-dev
