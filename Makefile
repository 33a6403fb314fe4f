# Sluice: build, test, install. `make help` lists the targets.
SHELL   := /bin/bash
GO      ?= go
TOOLBIN := $(CURDIR)/.ci/tools/bin

PREFIX  ?= /usr/local
SEED    ?= 1
DESTDIR ?=
BUILD   := $(GO) build -trimpath -ldflags "-s -w" -tags urfave_cli_no_docs
# The node daemon calls NVIDIA's driver through cgo, so it is built with cgo where there is a C compiler. The other programs are static.
CGO     := $(shell command -v $(firstword $(shell $(GO) env CC)) >/dev/null 2>&1 && echo 1 || echo 0)
# The PMIx server of srun --mpi=pmix links with libpmix: it is built only where libpmix is installed.
PMIX    := $(shell [ $(CGO) = 1 ] && pkg-config --exists pmix 2>/dev/null && echo 1 || echo 0)
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations
# Git refuses to describe a checkout of another user, which would fail the build; versions come from internal/version.
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -buildvcs=false -trimpath)
DAEMONS := sluice-ctld sluice-noded

.PHONY: throughput oracle help build install test test-vm race fuzz check bench bench-compare demo clean generate tools deps packages man
help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

build: ## build the programs into bin/, with a link for each of Slurm's commands
	@mkdir -p bin
	@echo "bin/sluice, bin/sluice-steps, bin/sluice-ctld"
	@CGO_ENABLED=0 .ci/progress $(BUILD) -v -o bin/ ./cmd/sluice ./cmd/sluice-steps ./cmd/sluice-ctld
	@echo "bin/sluice-noded"
	@CGO_ENABLED=$(CGO) .ci/progress $(BUILD) -v -o bin/ ./cmd/sluice-noded
ifeq ($(CGO),0)
	@echo "There is no C compiler ($(firstword $(shell $(GO) env CC))), so sluice-noded is built without cgo: it does not detect NVIDIA"
	@echo "GPUs, monitor their health and use, or create MIG instances. Everything else works."
	@echo "On a machine with GPUs, install gcc and libc6-dev, and run make build again."
endif
ifeq ($(PMIX),1)
	@echo "bin/sluice-pmix"
	@CGO_ENABLED=1 .ci/progress $(BUILD),pmix -v -o bin/ ./cmd/sluice-pmix
else
	@rm -f bin/sluice-pmix
	@echo "libpmix is not installed, so nodes refuse srun --mpi=pmix. --mpi=pmi2 works, and so does mpirun within an allocation."
	@echo "For --mpi=pmix, install libpmix-dev and pkg-config, and run make build again."
endif
	@.ci/link bin

man: build ## write the manual pages into bin/man
	@rm -rf bin/man
	$(GO) run ./deploy/man -bin bin -o bin/man

install: build man ## install below PREFIX (/usr/local), inside DESTDIR if set
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/sbin $(DESTDIR)$(PREFIX)/share/doc/sluice
	install -m 755 bin/sluice bin/sluice-steps $(DESTDIR)$(PREFIX)/bin/
	install -m 755 $(DAEMONS:%=bin/%) $(wildcard bin/sluice-pmix) $(DESTDIR)$(PREFIX)/sbin/
	.ci/link $(DESTDIR)$(PREFIX)/bin
	deploy/share bin $(DESTDIR)$(PREFIX)/share
	deploy/share --slurm bin $(DESTDIR)$(PREFIX)/share
	install -m 644 README.md LICENSE $(DESTDIR)$(PREFIX)/share/doc/sluice/
	cp -r examples docs $(DESTDIR)$(PREFIX)/share/doc/sluice/

deps: ## install the missing Debian packages that tests and demo need
	@.ci/packages

packages: ## build deb, rpm and a tarball of static programs into dist/; ARCH="amd64 arm64" for other architectures
	@rm -rf dist
	@GO=$(GO) deploy/packages/build dist $(or $(ARCH),$(shell $(GO) env GOHOSTARCH))

# Tests that boot hosts or take minutes for other reasons. make nightly runs them, and the longer rounds of the others (without -short).
LONG  := internal/test/boottest|deploy
# Packages whose threads share the most data are tested with the race detector, where there is a C compiler for it.
RACED := ctld/loop ctld/frames ctld/rpc ctld/turns ctld/nodeport ctld/live ctld/dispatch ctld/planner noded/step noded/agent
# The programs are built first, because several tests at once would build them too.
test: deps build $(TOOLBIN)/gotestsum ## run the tests (ten minutes); as root with real cgroups and a second user; SEED=N for another order
	@GO=$(GO) SEED=$(SEED) .ci/test $(if $(filter 1,$(CGO)),$(RACED:%=./%)) -- -short \
		$$($(GO) list ./... | grep -vE '/($(LONG))(/|$$)')

.PHONY: test-long
test-long: deps $(TOOLBIN)/gotestsum ## run all tests (an hour); fails if they leave anything behind on this machine
	@.ci/test-user
	@GO=$(GO) SEED=$(SEED) TIMEOUT=60m .ci/leftovers .ci/test -- ./...

race: deps $(TOOLBIN)/gotestsum ## run the tests of packages with concurrent goroutines under the race detector
	@GO=$(GO) SEED=$(SEED) TIMEOUT=60m .ci/test $$(GO=$(GO) .ci/concurrent) --

.PHONY: crash nightly
KILLS ?= 100
SEEDS ?= 5000
crash: deps $(TOOLBIN)/gotestsum ## kill each daemon KILLS (100) times and simulate SEEDS (5000) clusters (an hour)
	@GO=$(GO) SEED=$(SEED) TIMEOUT=6h .ci/test -- ./internal/test/crashtest -kills $(KILLS)
	@GO=$(GO) SEED=$(SEED) TIMEOUT=6h .ci/test -- ./internal/test/simtest -seed $(SEED)000 -seeds $(SEEDS)

nightly: ## run everything (hours); see .ci/nightly
	@.ci/nightly

FUZZTIME ?= 5s
fuzz: ## run each fuzz target for FUZZTIME (5s); ONLY=REGEXP selects by package/name
	@GO=$(GO) .ci/fuzz $(FUZZTIME) $(if $(ONLY),'$(ONLY)')

.PHONY: test-cluster
PACKAGES ?= $(CURDIR)/dist
test-cluster: ## deploy a cluster with Ansible on booted hosts, as root; VM=1: also on an emulated one; PACKAGES=DIR of debs (dist)
	umask 022 && TMPDIR=/tmp $(GO) test -count=1 -timeout 3h -v ./deploy/ansible/clustertest -cluster -packages $(abspath $(PACKAGES)) \
		$(if $(VM),-vm)

test-vm: ## test cgroup v2 and cgroup v1, each alone, on a Debian kernel in an emulated machine; about ten minutes
	@GO=$(GO) .ci/vm/run

check: tools ## check formatting, vet, staticcheck and generated files
	@bad=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); [ -z "$$bad" ] || \
		{ echo "gofmt would change:"; echo "$$bad"; exit 1; }
	$(GO) vet ./...
	CGO_ENABLED=0 $(GO) vet ./cmd/sluice-noded ./noded/gpu/nvml
ifeq ($(PMIX),1)
	$(GO) vet -tags pmix ./noded/pmix
	$(TOOLBIN)/staticcheck -tags pmix ./noded/pmix
endif
	$(TOOLBIN)/staticcheck ./...
	@.ci/generated

oracle: ## record the answers of a real Slurm (Debian's packages, as root) to the corpus of client/compat again
	@.ci/oracle/record $(if $(SCRIPTS),'$(SCRIPTS)')

bench: ## run the benchmarks
	$(GO) test -run '^$$' -bench . -benchmem -timeout 60m ./...

bench-compare: $(TOOLBIN)/benchstat ## compare the short benchmarks with those of the last commit (BASE=COMMIT)
	@GO=$(GO) .ci/bench '$(BASE)' $(if $(ONLY),'$(ONLY)')

throughput: build ## measure the cost of submitting, querying and running on a cluster of this machine (N=1000 jobs)
	@.ci/throughput --up $(or $(N),1000)

demo: build ## show the claims of README.md on a cluster of this machine: jobs, GPUs, kill -9 under load, explain, sacct (half a minute)
	@.ci/packages demo
	@examples/demo.sh

clean: ## delete build results
	rm -rf bin dist $(TOOLBIN)

# nfpm builds the packages; make packages builds it.
GENERATORS := buf protoc-gen-go protoc-gen-go-grpc protoc-gen-go-ttrpc
.PHONY: generators
generators: $(GENERATORS:%=$(TOOLBIN)/%)
tools: $(TOOLBIN)/staticcheck $(TOOLBIN)/gotestsum ## build what check and test need, at pinned versions
$(TOOLBIN)/%: .ci/tools/go.mod .ci/tools/go.sum
	@mkdir -p $(TOOLBIN)
	cd .ci/tools && $(GO) build -o $@ $$(sed -n 's,^\t\(.*/$*\)$$,\1,p' go.mod)

generate: generators ## regenerate proto/, client/msg, what formats need, and the keys in docs/configuration.md
	cd proto && for t in buf.gen.yaml buf.gen.local.yaml buf.gen.node.yaml; do \
		PATH=$(TOOLBIN):$$PATH buf generate --template $$t || exit 1; done
# The next line writes it again; the old file does not compile after a field was removed.
	rm -f proto/sluice/v1/encode.gen.go
	$(GO) run ./client/msg/gen -pb proto/sluice/v1 -msg client/msg -client client -encode proto/sluice/v1
	$(GO) run ./client/format/gen -dir client
	$(GO) test ./conf/keydoc -run DocumentedKeys -update
	.ci/generated --record
