# Sluice: build, test, install. `make help` lists the targets.
SHELL   := /bin/bash
GO      ?= go
TOOLBIN := $(CURDIR)/.ci/tools/bin

PREFIX  ?= /usr/local
DESTDIR ?=
BUILD   := $(GO) build -trimpath -tags urfave_cli_no_docs -ldflags "-s -w"
# The node daemon talks to NVIDIA's driver through cgo: it is built so where there is a C compiler. The rest is static.
CGO     := $(shell command -v $(firstword $(shell $(GO) env CC)) >/dev/null 2>&1 && echo 1 || echo 0)
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations
DAEMONS := sluice-ctld sluice-noded

.PHONY: throughput oracle help build install test test-vm check bench demo clean generate tools packages
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

build: ## build the programs into bin/, with a link for each of Slurm's commands
	@mkdir -p bin
	CGO_ENABLED=0 $(BUILD) -o bin/ ./cmd/sluice ./cmd/sluice-ctld
	CGO_ENABLED=$(CGO) $(BUILD) -o bin/ ./cmd/sluice-noded
	@.ci/link bin

install: build ## install below PREFIX (/usr/local), inside DESTDIR when given
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/sbin $(DESTDIR)$(PREFIX)/share/doc/sluice
	install -m 755 bin/sluice $(DESTDIR)$(PREFIX)/bin/
	install -m 755 $(DAEMONS:%=bin/%) $(DESTDIR)$(PREFIX)/sbin/
	.ci/link $(DESTDIR)$(PREFIX)/bin
	install -m 644 README.md LICENSE $(DESTDIR)$(PREFIX)/share/doc/sluice/
	cp -r examples docs $(DESTDIR)$(PREFIX)/share/doc/sluice/

packages: ## install the Debian packages that tests and demo need, those that are missing
	@.ci/packages

test: packages ## run all tests; as root with real cgroups and a second user
	@.ci/test-user
# Other users run the programs and read the configurations, and paths of sockets are short.
	umask 022 && SLUICE_TEST_USER=$$(.ci/test-user --name) TMPDIR=/tmp $(GO) test -timeout 20m ./...

test-vm: ## test cgroup v2 and cgroup v1, each alone, on a Debian kernel in an emulated machine; about a minute
	@GO=$(GO) .ci/vm/run

check: tools ## formatting, vet, staticcheck, and generated files up to date
	@bad=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); [ -z "$$bad" ] || { echo "gofmt would change:"; echo "$$bad"; exit 1; }
	$(GO) vet ./...
	CGO_ENABLED=0 $(GO) vet ./cmd/sluice-noded ./noded/gpu/nvml
	$(TOOLBIN)/staticcheck ./...
	@.ci/generated

oracle: ## ask a real Slurm (Debian's packages, as root) the corpus of client/compat again, and keep its answers
	@.ci/oracle/record $(SCRIPTS)

bench: ## run the benchmarks
	$(GO) test -run '^$$' -bench . -benchmem -timeout 60m ./...

throughput: build ## what submitting, looking and running cost on a cluster of this machine (N=1000 jobs)
	@.ci/throughput --up $(or $(N),1000)

demo: build ## a cluster, a training job and a job that reaches its time limit; about 75 seconds
	@examples/demo.sh

clean: ## delete what was built
	rm -rf bin dist $(TOOLBIN)

TOOLS := buf protoc-gen-go protoc-gen-go-grpc protoc-gen-go-ttrpc staticcheck
tools: $(TOOLS:%=$(TOOLBIN)/%) ## build the pinned generators and checkers
$(TOOLBIN)/%: .ci/tools/go.mod .ci/tools/go.sum
	@mkdir -p $(TOOLBIN)
	cd .ci/tools && $(GO) build -o $@ $$($(GO) list -f '{{.ImportPath}}' tool | grep "/$*$$")

generate: tools ## regenerate proto/, client/msg and what formats need
	cd proto && for t in buf.gen.yaml buf.gen.local.yaml buf.gen.node.yaml; do PATH=$(TOOLBIN):$$PATH buf generate --template $$t || exit 1; done
	$(GO) run ./client/msg/gen -pb proto/sluice/v1 -msg client/msg -client client -encode proto/sluice/v1
	$(GO) run ./client/format/gen -dir client
