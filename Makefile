# draftmill: `make demo` shows it, `make test` proves it.

GO      ?= go
BIN     := bin
LINT    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: all build ort demo test race mutants lint check bench clean

all: build

## build: compile bin/submit and bin/worker
build:
	$(GO) build -o $(BIN)/ ./cmd/submit ./cmd/worker

## ort: get the pinned ONNX Runtime into the user's cache (once; needs npm)
ort: build
	@$(BIN)/submit setup >/dev/null

## demo: run both modes on the demo dataset and compare them
demo: ort
	$(BIN)/submit --config configs/demo.yaml

## test: every test, against the real ONNX Runtime, JetStream and Parquet
test: ort
	$(GO) test ./...

## race: the tests under the race detector
race: ort
	$(GO) test -race ./...

## mutants: broken variants of the algorithm, and the test that catches each
mutants:
	$(GO) test ./spec/mutants -run TestMutants -count 1 -v

## check: formatting and vet
check:
	@out=$$(gofmt -l .); test -z "$$out" || { echo "not gofmt'ed:"; echo "$$out"; exit 1; }
	$(GO) vet ./...

## lint: golangci-lint, import arrows included
lint:
	$(GO) run $(LINT) run ./...

## bench: the ratios that draftmill promises, each measured within one run
bench: ort
	$(GO) test ./cmd/internal/bench -run '^$$' -bench . -benchtime 1x -timeout 30m

clean:
	rm -rf $(BIN) out
