# draftmill: `make demo` shows it, `make test` proves it.

GO      ?= go
BIN     := bin
LINT    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
VULN    := golang.org/x/vuln/cmd/govulncheck@v1.8.0

.PHONY: all build ort ort-cuda demo report-demo test test-report test-webgpu test-cuda test-cuda-build test-arm64 chaos mutate race asan soak mutants lint check bench bench-queue bench-peers bench-real bench-gpu bench-trim vuln bench-humaneval clean

all: build

## build: compile bin/submit and bin/worker
build:
	$(GO) build -o $(BIN)/ ./cmd/submit ./cmd/worker

## ort: get the pinned ONNX Runtime into the user's cache (once; needs npm)
ort: build
	@$(BIN)/submit setup >/dev/null

## ort-cuda: the same with CUDA, for device cuda (once; needs pip, see ort/library/doc.go)
ort-cuda:
	@ort/library/cuda.sh

## demo: run both modes on the demo dataset and compare them
demo: ort
	$(BIN)/submit --config configs/demo.yaml

## report-demo: both modes with 20 samples a problem, scored and compared, and a sweep of
## lookaheads: out/report-demo.html and out/sweep.html (needs python3 and bubblewrap)
report-demo: ort
	$(BIN)/submit --config configs/demo.yaml --n 20 --margin 0.05 --lanes auto --job report-demo
	$(BIN)/submit score report-demo
	$(BIN)/submit report report-demo --html out/report-demo.html --plots out/report-demo-plots
	$(BIN)/submit sweep --k 0..8 --config configs/demo.yaml --job sweep --html out/sweep.html --plots out/sweep-plots

## test: every test, against the real ONNX Runtime, JetStream and Parquet
test: ort
	$(GO) test -timeout 30m ./...
	@$(MAKE) --no-print-directory test-webgpu

## test-report: the report, a sweep and the live page in headless Chromium (needs chromium, python3 and
## bubblewrap); OUT=DIR keeps the pictures
test-report: ort
	$(GO) test -tags chromium ./cmd/internal/e2e -run TestChromium -count 1

## test-webgpu: the engine's conformance suite and the sampler on WebGPU, in software where there is no GPU
test-webgpu: ort
	ort/orttest/swiftshader.sh $(GO) test -tags webgpu -run 'WebGPU|Mover' ./ort
	ort/orttest/swiftshader.sh $(GO) test -tags webgpu -run 'Standardize|Verify|Wide|NoDistribution|Confidence|Noise|Race|OneWait' ./cmd/internal/sampling
	ort/orttest/swiftshader.sh $(GO) test -tags webgpu -run 'DevicesOfAPair|SamplerOnDevice' ./cmd/internal/app

## test-cuda: the same on NVIDIA GPUs; without one it says so (GPU=1: and fails); see docs/gpu.md
test-cuda:
	@GO=$(GO) ort/orttest/cuda.sh

## test-cuda-build: its programs, in BINARIES=DIR, for a machine without Go
test-cuda-build:
	@GO=$(GO) ort/orttest/cuda.sh build "$(or $(BINARIES),$(BIN)/cuda)"

## test-arm64: the kernels' tests on an emulated arm64 (Debian: qemu-user, gcc-aarch64-linux-gnu, libc6-dev-arm64-cross)
test-arm64:
	@for c in qemu-aarch64 aarch64-linux-gnu-gcc; do command -v $$c >/dev/null || \
		{ echo "$$c is missing: apt-get install qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross"; exit 1; }; done
	GOARCH=arm64 CGO_ENABLED=1 CC=aarch64-linux-gnu-gcc $(GO) test -exec 'qemu-aarch64 -L /usr/aarch64-linux-gnu' ./ort/kernels

## chaos: the fault suite in full (minutes); its table goes to docs/reliability.md
chaos: ort
	$(GO) test ./cmd/internal/e2e -run Chaos -count 1 -timeout 40m -v -full -table $(CURDIR)/docs/reliability.md

## mutate: 1,000 damaged models, 10,000 damaged datasets, tokenizers and configurations, and a minute of each fuzz target
mutate: ort
	MUTATIONS=1000 $(GO) test ./ort -run TestDamagedBundles -count 1 -timeout 30m
	MUTATIONS=10000 $(GO) test ./pipeline/tokenize ./configs -run TestDamaged -count 1 -timeout 30m
	MUTATIONS=10000 $(GO) test ./storage -run TestDamagedFiles -count 1 -timeout 60m
	@for target in pipeline/tokenize:FuzzParse pipeline/tokenize:FuzzEncode configs:FuzzConfiguration ort/graph:FuzzParse \
		ort/convert/gguf:FuzzParse ort/convert/safetensors:FuzzParse spec:FuzzParseNGram \
		storage:FuzzJSONLines storage:FuzzDecodeShard storage:FuzzSealedShard storage:FuzzDetectFormat storage:FuzzJobFiles storage/bucket:FuzzPlaces; do \
		echo "$$target"; $(GO) test ./$${target%%:*} -run '^$$' -fuzz "^$${target#*:}\$$" -fuzztime 1m -fuzzminimizetime 10x || exit 1; done

## race: the tests under the race detector
race: ort
	$(GO) test -race ./...

## asan: the engine's tests under the address sanitizer, leaks included (its own memory and
## C's; what is left out counts Go's allocations, to which the sanitizer adds)
asan: ort
	ASAN_OPTIONS=quarantine_size_mb=1 CGO_CFLAGS="-O1 -g" CGO_LDFLAGS="-O1 -g -Wl,--no-as-needed -lstdc++" \
		$(GO) test -asan -skip AllocateNothing -timeout 30m ./ort ./ort/kernels

## soak: 10,000 models opened and closed, and half an hour of decoding, in flat memory
soak: ort
	$(GO) test -tags soak -run Soak -count 1 -timeout 60m -v ./ort

## mutants: broken variants of the algorithm, and the test that catches each
mutants:
	$(GO) test ./spec/mutants -run TestMutants -count 1 -v

## check: formatting, vet, and a tidy go.mod
check:
	@out=$$(gofmt -l .); test -z "$$out" || { echo "not gofmt'ed:"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags chaos ./cmd/worker ./storage
	$(GO) mod tidy -diff

## lint: golangci-lint, import arrows included
lint:
	$(GO) run $(LINT) run ./...

## bench: the ratios that draftmill promises, each measured within one run
bench: ort
	$(GO) test ./cmd/internal/bench -run '^$$' -bench . -skip "Queue|Submit|Scale" -benchtime 1x -timeout 30m

## bench-queue: what queue and storage cost beside the models, a million prompts submitted, and 1,000 workers worked out
bench-queue:
	$(GO) test ./cmd/internal/bench -run '^$$' -bench 'Queue|Submit|Scale' -benchtime 1x -timeout 30m

## bench-peers: draftmill beside llama.cpp, onnxruntime-genai and transformers (see bench/README.md)
bench-peers: ort
	sh bench/run.sh

## bench-real: the same on a real pair: TARGET=, DRAFT= folders of int4 models, GGUF_TARGET=, GGUF_DRAFT= their weights for llama.cpp
bench-real: ort
	sh bench/real.sh "$(TARGET)" "$(DRAFT)" "$(GGUF_TARGET)" "$(GGUF_DRAFT)"

## bench-trim: SpS with a draft's whole head and with one of N tokens: TARGET=, DRAFT= (a Hugging Face folder or .gguf), DATASET=; see bench/trim.sh
bench-trim: ort
	TEXT="$(TEXT)" COLUMN="$(COLUMN)" sh bench/trim.sh "$(TARGET)" "$(DRAFT)" "$(DATASET)" $(or $(N),32768) $(or $(ROUNDS),3) $(FLAGS)

## bench-gpu: a pair on an NVIDIA GPU, ArS and SpS at 1 to 64 sequences; DEVICE=cpu tries it without one; see bench/gpu.sh
bench-gpu:
	@GO=$(GO) bench/gpu.sh

## vuln: known vulnerabilities in what is called (needs vuln.go.dev, or VULNDB= the URL of a copy)
vuln:
	$(GO) run $(VULN) $(if $(VULNDB),-db $(VULNDB)) ./...

## bench-humaneval: pass@1 and mean token time on HumanEval: DATA= its Parquet file, TARGET=, DRAFT=; WHAT=quality, speed or figure
bench-humaneval: ort
	sh bench/humaneval.sh "$(or $(WHAT),quality)" "$(DATA)" "$(TARGET)" "$(DRAFT)"

clean:
	rm -rf $(BIN) out
