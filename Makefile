# Every target works from a fresh clone. `make help` lists them.
MODULES := $(shell sed -n 's|^	\./||p' go.work)
PACKAGES := $(addsuffix /...,$(addprefix ./,$(MODULES)))
PROGRAMS := ./deploy/standalone ./deploy/split ./deploy/setup ./deploy/import ./deploy/license ./gateway/cmd/gateway $(wildcard ./services/*/cmd/*)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.7.0
OAPI_CODEGEN := github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2

# One set of flags for everything that is built, so that nothing is built twice. The race detector needs cgo.
export GOFLAGS := -trimpath
export CGO_ENABLED := 0

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 20

.PHONY: postgres
postgres:
	@deploy/postgres.sh

.PHONY: run
run: $(if $(DATABASE_URL),,postgres) build ## build and start all of Ironplane in one process, which may speak with the site agent of make machine
	@IRONPLANE_ALLOWED_NETWORKS="$${IRONPLANE_ALLOWED_NETWORKS-100.64.0.0/10}" exec bin/standalone

.PHONY: run-split
run-split: $(if $(DATABASE_URL),,postgres) build ## build and start the gateway and each service as a process of its own
	@exec bin/split

.PHONY: admin-key
admin-key: build ## make another key for the first admin, should the last one be lost
	@exec bin/standalone admin-key

.PHONY: build
build: ## build the programs into bin/
	@mkdir -p bin
	go build -ldflags "-X $(VERSIONED)=$$(git describe --tags --always --dirty 2>/dev/null)" -o bin/ $(PROGRAMS)

VERSIONED := github.com/ironplane/ironplane/pkg/runtime/process.version

.PHONY: packages
packages: ## make a .deb and an .rpm in bin/packages, install and remove them where there is dpkg, and run their units under systemd where there is Docker
	@rm -rf bin/package bin/packages && mkdir -p bin/package bin/packages
	go build -ldflags "-s -w -X $(VERSIONED)=$$(git describe --tags --always --dirty 2>/dev/null)" -o bin/package/ $(filter-out ./deploy/split,$(PROGRAMS))
	@for packager in deb rpm; do \
		VERSION=$(PACKAGE_VERSION) ARCH=$$(go env GOARCH) go run $(NFPM) package --config deploy/packages/nfpm.yaml --packager $$packager --target bin/packages/ || exit 1; done
	go test -count 1 ./deploy/packages -packages $(CURDIR)/bin/packages

# That of the newest tag, and how many commits ago; without a tag the commit's time.
PACKAGE_VERSION = $$(git describe --tags --match 'v[0-9]*' 2>/dev/null | sed 's/^v//; s/-/+/g' | grep . || git log -1 --format=0.0.%ct+%h)
NFPM := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2

# Runs tests, prints the ten slowest and what the run cost; in CI it runs a failed test once more.
TEST := go run ./deploy/internal/testrun $(if $(CI),-retry) -- -shuffle=on -timeout 40m

# Left to make test-all: split and standalone stop, kill and restore whole installations; packages installs packages; alike has
# a database for each comparison; browser needs Chromium, netboot root and QEMU; revocation and ssl wait for what they test;
# measure measures.
LONG := $(addprefix github.com/ironplane/ironplane/deploy/,split standalone packages internal/alike internal/browser \
	internal/netboot internal/revocation internal/ssl measure/%)

TESTED = $(filter-out ./deploy/...,$(PACKAGES)) $(filter-out $(LONG),$(shell go list ./deploy/...))

.PHONY: test
test: postgres ## run the unit tests, each service's own tests, and the tests of the whole product: some five minutes on two cores
	$(TEST) $(TESTED)

.PHONY: test-all
test-all: postgres ## run all tests, those of packages and services with the race detector where there is a C compiler
	$(if $(RACE),CGO_ENABLED=1) $(TEST) $(RACE) $(filter-out ./deploy/...,$(PACKAGES))
	$(TEST) ./deploy/...

.PHONY: test-alone
test-alone: ## run all tests again, each module by itself, as its go.mod alone has it
	@for m in $(MODULES); do (cd $$m && GOWORK=off go test -timeout 20m ./...) || exit 1; done

.PHONY: test-containers
test-containers: ## run the tests that need a Docker engine, in their order, as they share one installation; FULL=-full measures for longer
	$(TEST) -shuffle=off -count=1 -timeout 30m -tags containers ./deploy/containers $(FULL)

.PHONY: revocation
revocation: ## revoke keys in every way with everything that can go wrong, and print how long it took
	go test -v -timeout 30m -parallel 2 ./deploy/internal/revocation -full

.PHONY: timing
timing: ## compare the times of answers to known and unknown names at logins and password resets, on a machine that does nothing else
	go test -v -count 1 -timeout 60m ./deploy/internal/alike -run TestTimes -full

.PHONY: guessing
guessing: ## guess 100,000 keys, codes and passwords from as many addresses, and print what that takes of each process' memory and of others' time
	go test -v -count 1 -timeout 60m ./deploy/split -run TestFloodOfGuesses -full

.PHONY: storm
storm: ## allocate and release with 200 callers while the network service is killed again and again
	go test -v -timeout 30m ./deploy/split -run TestAllocationStorm -full

.PHONY: crash
crash: ## change things at random while services, Postgres and Redis are killed 200 times and four schemas restored, and compare what is left, and what mails and webhooks have brought
	go test -v -timeout 60m ./deploy/split -run TestCrash -full

.PHONY: deletions
deletions: ## refer to what is being deleted, 64 callers at once and 500 times each, while nothing is killed and while processes are
	go test -v -timeout 60m ./deploy/internal/product -run 'While.*IsDeleted' -full
	go test -v -timeout 90m ./deploy/split -run TestUseOfWhatIsBeingDeleted -full

.PHONY: sites
sites: ## sync 500 files from agent to agent while agents and the pxe service are killed, a disk is full and one agent lies, and compare the trees: 10 minutes
	go test -v -timeout 30m ./deploy/split -run TestSiteAgents -full

.PHONY: netboot
netboot: ## as root, have machines (QEMU) boot from a site agent, be installed and come back from their disks; FULL=1 disturbs each in every way, boots the system in memory, has Debian's own installer go as far as the mirror has what it takes, and twenty machines at once
	$(TEST) -count=1 -timeout 6h -parallel 4 ./deploy/internal/netboot -machines $(if $(FULL),-full)

.PHONY: netboot-setup
netboot-setup: ## install what make netboot and make machine need on Debian or Ubuntu, as root
	-apt-get update
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 $(NETBOOT_PACKAGES)

NETBOOT_PACKAGES := qemu-system-x86 iproute2 grub-common dosfstools mtools cpio busybox-static ipxe ipxe-qemu ovmf grub-pc-bin grub-efi-amd64-bin mmdebstrap zstd openssh-client radvd isc-dhcp-relay dnsmasq-base debian-archive-keyring

.PHONY: machine
machine: ## as root, beside make run: have a machine (QEMU) with an empty disk installed over the API, and show its console: make machine KEY=ip_…
	@KEY=$(KEY) go test -v -count 1 -timeout 1h ./deploy/internal/netboot -run TestDemonstration -machines

.PHONY: product
product: ## run the product's tests with the race detector, on services that are reached over mTLS and once more in one process
	$(if $(RACE),CGO_ENABLED=1) go test $(RACE) -timeout 60m ./deploy/internal/product -full

.PHONY: restore
restore: ## back up and restore by the words of docs/operate/backup.md, in every way, while callers change things
	go test -v -timeout 30m ./deploy/standalone -run 'TestRestore|TestPointInTime' -full

.PHONY: upgrade
upgrade: ## upgrade the last release under load to what is here, go back, and forth again, and compare the schemas with those of a new installation
	go test -v -timeout 30m ./deploy/split -run TestUpgrade -full

.PHONY: replace
replace: ## replace two of each process in turn under 150 requests a second, none of which may fail
	go test -v -timeout 30m ./deploy/split -run TestReplacedInTurn -full

# The long forms of tests that a change of what they test should pass, each with its deadline in minutes.
NIGHT := crash:60 storm:30 revocation:40 restore:30 upgrade:30 replace:30 deletions:150 sites:30 guessing:60 timing:60 clients:20 \
	packages:30 netboot:360

.PHONY: night
night: ## run all long forms of tests in turn, some hours, and print a table: target, seconds, result, what it measured
	@deploy/night.sh $(NIGHT)

.PHONY: fuzz
fuzz: ## try spellings on every parser that has a fuzz target, for FUZZTIME each
	@grep -rnoE --include='*_test.go' '^func Fuzz[A-Za-z]*' . | sed 's|/[^/]*_test.go:[0-9]*:func | |' | while read -r package target; do \
		go test $$package -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) || exit 1; done

FUZZTIME := 30s

# The race detector needs cgo.
RACE := $(shell command -v $$(go env CC) >/dev/null 2>&1 && echo -race)

.PHONY: lint
lint: ## gofmt, vet, staticcheck, no programs or large files in git, modules and generated files in step, each module building alone
	@test -z "$$(gofmt -l .)" || { echo "not formatted:"; gofmt -l .; exit 1; }
	go test -count=1 ./deploy/internal/arch
	go vet -tags containers $(PACKAGES)
	go run $(STATICCHECK) -tags containers $(PACKAGES)
	go work sync
	@for m in $(MODULES); do \
		(cd $$m && GOWORK=off go mod tidy -diff && GOWORK=off go build ./...) || { echo "$$m is out of step: run 'make tidy'"; exit 1; }; done
	@$(MAKE) --no-print-directory go-client && git diff --exit-code -- docs/reference pkg/client || { echo "the routes changed the files above: commit them"; exit 1; }
	@$(MAKE) --no-print-directory schema && git diff --exit-code -- '*schema.sql' || { echo "the migrations or views changed the files above: commit them"; exit 1; }
	@git diff --exit-code -- '*go.mod' '*go.sum' go.work go.work.sum || { echo "go work sync changed the files above: commit them"; exit 1; }

.PHONY: tidy
tidy: ## bring the modules' requirements in step
	go work sync
	@for m in $(MODULES); do (cd $$m && GOWORK=off go mod tidy) || exit 1; done

.PHONY: services
services: ## write what follows from the services' definitions: pkg/catalog, and what compose, the package and the pages lack of a service
	go run ./deploy/services .

.PHONY: openapi
openapi: ## write docs/reference: openapi.json, errors.md, policy.md, variables.md, email-variables.md and pxe-variables.md
	go run ./deploy/document docs/reference

.PHONY: schema
schema: postgres ## write schema.sql for each service and for what all have, from the catalogue of a new installation
	go run ./deploy/schema .

.PHONY: go-client
go-client: openapi ## write the Go client in pkg/client from the routes
	go run $(OAPI_CODEGEN) -config pkg/client/oapi-codegen.yaml docs/reference/openapi.json

.PHONY: clients
clients: go-client ## write the Go client, and into bin/clients one in TypeScript and one in Python; lint the API document with Redocly and Spectral
	@deploy/clients/check.sh

.PHONY: bench
bench: ## measure reading (also over TLS), allocating and creating beside pgbench and nginx; answers beside a smaller installation's; a list beside COPY; 10,000 mails and webhook deliveries, and what a read next to them loses; site agents beside rsync, TFTP servers, nginx and dnsmasq; FULL=-full has a file of 4 GiB
	go run ./deploy/measure/bench
	go test -run '^$$' -bench . -benchmem ./gateway/... ./pkg/runtime/peers ./pkg/rest/route
	go test -run '^$$' -bench Answers -benchtime 25x ./deploy/measure/scale -entities 200000
	go test -run '^$$' -bench List -benchtime 5x ./deploy/measure/scale -entities 200000
	go test -run '^$$' -bench 'Mails|Webhooks' -benchtime 10000x ./services/system
	go test -run '^$$' -bench . -benchtime 3x -timeout 1h ./deploy/measure/files $(FULL)

.PHONY: idle
idle: build ## measure what an installation takes while nothing happens, and how soon others know of a change; PROGRAM=bin/split measures processes of their own
	go run ./deploy/measure/idle -program $(PROGRAM)

PROGRAM := bin/standalone

.PHONY: scale
scale: ## show, on 10 million IP entities or ENTITIES=…, that pages stay few and lists fast and small, and that a driver of 512 MiB is: most of an hour
	go test ./deploy/measure/scale -v -count 1 -timeout 3h -entities $(ENTITIES)
	go test ./deploy/split -v -count 1 -timeout 1h -run TakesLittleMemory -full

ENTITIES := 10000000

.PHONY: setup
setup: ## install Postgres and Redis on Debian or Ubuntu, as root
	apt-get update
	apt-get install -y --no-install-recommends postgresql redis-server gcc libc6-dev
