# Sluice: build, test, install. `make help` lists the targets.
SHELL   := /bin/bash
GO      ?= go
TOOLBIN := $(CURDIR)/.ci/tools/bin

.PHONY: help generate tools
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

TOOLS := buf protoc-gen-go protoc-gen-go-grpc protoc-gen-go-ttrpc staticcheck
tools: $(TOOLS:%=$(TOOLBIN)/%) ## build the pinned generators and checkers
$(TOOLBIN)/%: .ci/tools/go.mod .ci/tools/go.sum
	@mkdir -p $(TOOLBIN)
	cd .ci/tools && $(GO) build -o $@ $$($(GO) list -f '{{.ImportPath}}' tool | grep "/$*$$")

generate: tools ## regenerate proto/
	cd proto && for t in buf.gen.yaml buf.gen.local.yaml buf.gen.node.yaml; do PATH=$(TOOLBIN):$$PATH buf generate --template $$t || exit 1; done
