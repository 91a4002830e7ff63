package app

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/ort/library"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/tokenize"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage/hub"
)

// Models keeps the models of a process: each is read and loaded once, however
// many workers and modes use it.
type Models struct {
	cfg configs.Config
	log *slog.Logger
	ctx context.Context // ends conversions

	turn      chan struct{}     // holds one token while somebody uses what follows
	known     map[string]*entry // by what it was called
	tables    map[string]*spec.NGram
	bandwidth map[*ort.Model]float64 // bytes a second, by the target whose weights were the measure
	said      map[string]bool        // what is logged once
	inited    bool
}

type entry struct {
	located   Located
	bundle    *ort.Bundle
	tokenizer *tokenize.Tokenizer
	loaded    map[variant]*loaded
	files     map[string]fs.FileInfo // as they were read
}

// variant is a way of loading a model.
type variant struct {
	context int // most tokens of a sequence; 0: the model's own
	device  string
}

type loaded struct {
	model  *ort.Model
	tested int // S of the widest self-test passed
}

// reads is what bounds a pair's speed from memory. Who decodes does without it
// where it cannot be measured.
func (m *Models) reads(models []*ort.Model) (r engine.Reads) {
	if r.Target = models[0].WeightBytes(); r.Target == 0 { // not on the CPU, or not by our kernels
		return engine.Reads{}
	}
	if len(models) > 1 {
		r.Draft = models[1].WeightBytes()
	}
	if m.bandwidth[models[0]] == 0 {
		b, err := readBandwidth(r.Target)
		if err != nil {
			m.log.Debug("the ceiling of the speed is not known", "err", err)
		}
		m.bandwidth[models[0]] = b
	}
	r.PerSecond = m.bandwidth[models[0]]
	return r
}

// NewModels makes an empty store; nothing is loaded yet.
func NewModels(cfg configs.Config, log *slog.Logger) *Models {
	return &Models{cfg: cfg, log: log, ctx: context.Background(), turn: make(chan struct{}, 1), known: map[string]*entry{}, tables: map[string]*spec.NGram{}, bandwidth: map[*ort.Model]float64{}, said: map[string]bool{}}
}

// lock waits for its turn until ctx ends.
func (m *Models) lock(ctx context.Context) error {
	select {
	case m.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *Models) unlock() { <-m.turn }

// Describe reads a model without loading it. One of the Hub is fetched, and a
// Hugging Face folder or a GGUF file converted first, unless the user's caches
// have it.
func (m *Models) Describe(dir string) (*ort.Bundle, error) {
	_ = m.lock(context.Background())
	defer m.unlock()
	e, err := m.read(dir)
	if err != nil {
		return nil, err
	}
	return e.bundle, nil
}

// Words are the tokenizer and the ends of sequence of the model in dir, which must
// be the one of this digest. Nothing is loaded.
func (m *Models) Words(dir string, want pipeline.Model) (*tokenize.Tokenizer, []int32, error) {
	_ = m.lock(context.Background())
	defer m.unlock()
	e, err := m.named(dir, want)
	if err != nil {
		return nil, nil, err
	}
	return e.tokenizer, e.bundle.EOS, nil
}

// Reference says what a job's specification has of a model, and by which name
// its workers find it.
func (m *Models) Reference(dir string) (ref pipeline.Model, place string, err error) {
	_ = m.lock(context.Background())
	defer m.unlock()
	e, err := m.read(dir)
	if err != nil {
		return ref, "", err
	}
	ref = pipeline.Model{Name: filepath.Base(filepath.Clean(e.bundle.Dir)), Digest: e.bundle.Digest}
	if e.located.Name != "" {
		ref.Name, ref.Source = e.located.Short, e.located.Name
		return ref, ref.Source, nil
	}
	place, err = filepath.Abs(dir)
	return ref, place, err
}

// CheckPair returns an error unless the draft's vocabulary is the target's.
func (m *Models) CheckPair(target, draft string) error {
	_ = m.lock(context.Background())
	defer m.unlock()
	t, err := m.read(target)
	if err != nil {
		return err
	}
	d, err := m.read(draft)
	if err != nil {
		return err
	}
	const remedy = "choose a draft of the target's family"
	if a, b := t.bundle.Vocab, d.bundle.Vocab; a != b {
		return fmt.Errorf("pair the models: the draft %s has %d logits, the target %s %d; %s", draft, b, target, a, remedy)
	}
	switch a, b := t.bundle.Encoder, d.bundle.Encoder; {
	case (a == nil) != (b == nil):
		return fmt.Errorf("pair the models: of the draft %s and the target %s one is an encoder-decoder model and the other is not; %s", draft, target, remedy)
	case a != nil && b.Most < a.Most:
		return fmt.Errorf("pair the models: the draft %s takes %d tokens of input, the target %s %d; %s", draft, b.Most, target, a.Most, remedy)
	}
	for id := range int32(max(t.tokenizer.VocabSize(), d.tokenizer.VocabSize())) {
		a, b := named(t.tokenizer, id), named(d.tokenizer, id)
		if a != b {
			return fmt.Errorf("pair the models: id %d is %q in the draft %s and %q in the target %s; %s", id, b, draft, a, target, remedy)
		}
	}
	return nil
}

// named is a token's text, empty for an id that has none: some converters name
// rows of the embeddings that no token has after their numbers.
func named(t *tokenize.Tokenizer, id int32) string {
	text, _ := t.Token(id)
	if text == fmt.Sprintf("[PAD%d]", id) {
		return ""
	}
	return text
}

// OpenFunc is the type of pipeline.Worker.Open.
type OpenFunc = func(context.Context, *pipeline.Job, pipeline.Place, pipeline.Mode) (engine.Pair, func(), error)

// Open is pipeline.Worker.Open: it loads what is not loaded and makes decoders
// for one worker, the worker-th of this process: workers share the configured
// devices evenly. The folders in overrides go before the place's.
func (m *Models) Open(overrides pipeline.Place, worker int) OpenFunc {
	targets, drafts := m.cfg.ORT.Devices(), m.cfg.ORT.DraftDevices()
	device := devices{targets[worker%len(targets)], drafts[worker%len(drafts)]}
	type answer struct {
		pair    engine.Pair
		release func()
		err     error
	}
	return func(ctx context.Context, job *pipeline.Job, place pipeline.Place, mode pipeline.Mode) (engine.Pair, func(), error) {
		if err := m.lock(ctx); err != nil {
			return engine.Pair{}, nil, err
		}
		// A load cannot be interrupted; who is told to stop need not wait for it.
		got := make(chan answer, 1)
		go func() {
			defer m.unlock()
			pair, release, err := m.open(ctx, overrides, device, job, place, mode)
			got <- answer{pair, release, err}
		}()
		select {
		case a := <-got:
			return a.pair, a.release, a.err
		case <-ctx.Done():
			go func() {
				if a := <-got; a.err == nil {
					a.release()
				}
			}()
			return engine.Pair{}, nil, ctx.Err()
		}
	}
}

// open makes the decoders of one job in one mode. The caller has the turn.
func (m *Models) open(ctx context.Context, overrides pipeline.Place, device devices, job *pipeline.Job, place pipeline.Place, mode pipeline.Mode) (_ engine.Pair, _ func(), err error) {
	var decoders []*ort.Decoder
	var remote *ort.PairSampler
	release := func() {
		m.closedSampler(remote)
		for _, d := range decoders {
			m.closed(d)
		}
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	var none engine.Pair
	target, e, err := m.model(choose(overrides.Target, place.Target), job.Target, job.K+1, variant{job.Context, device.target})
	if err != nil {
		return none, nil, fmt.Errorf("open the target: %w", err)
	}
	models := []*ort.Model{target}
	pair := engine.Pair{Tokenizer: e.tokenizer, EOS: e.bundle.EOS}
	if job.Chat != nil {
		pair.EOS = slices.Concat(pair.EOS, job.Chat.End)
	}
	if encoder := e.bundle.Encoder; encoder != nil {
		pair.Encoder = &engine.Encoder{Start: encoder.Start, Most: encoder.Most}
	}
	if mode == pipeline.SpS && job.Drafter != nil {
		if pair.Law, err = m.law(job.Drafter, e, choose(overrides.Table, place.Table)); err != nil {
			return none, nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return none, nil, err
	}
	if mode == pipeline.SpS && job.Draft != nil {
		draft, _, err := m.model(choose(overrides.Draft, place.Draft), *job.Draft, job.DraftWidth(), variant{job.Context, device.draft})
		if err != nil {
			return none, nil, fmt.Errorf("open the draft: %w", err)
		}
		models = append(models, draft)
	}
	tokens, lanes := m.room(models, len(job.Modes))
	pair.Lanes, pair.Reads = lanes, m.reads(models)
	for _, model := range models {
		d, err := model.NewDecoder(tokens * model.CacheBytesPerToken())
		if err != nil {
			return none, nil, err
		}
		decoders = append(decoders, d)
	}
	pair.Target = decoders[0]
	var draft *ort.Decoder
	if len(decoders) > 1 {
		draft = decoders[1]
		pair.Draft = draft
	}
	if remote, err = m.sampler(job, mode, device, pair, decoders[0], draft); err != nil {
		return none, nil, err
	}
	if remote != nil {
		pair.Remote = remote
	}
	return pair, release, nil
}

// model is the model in dir, as named has it, loaded. s is the
// number of tokens that one pass will have to score.
func (m *Models) model(dir string, want pipeline.Model, s int, v variant) (*ort.Model, *entry, error) {
	e, err := m.named(dir, want)
	if err != nil {
		return nil, nil, err
	}
	model, err := m.load(e, s, v)
	return model, e, err
}

// named reads the model in dir, which must be the one that the job names.
func (m *Models) named(dir string, want pipeline.Model) (*entry, error) {
	e, err := m.read(dir)
	if err != nil {
		return nil, err
	}
	if e.bundle.Digest != want.Digest {
		return nil, fmt.Errorf("model folder %s has digest %.12s, the job was submitted with %s of digest %.12s; put that model there, or name its folder in this command's configuration",
			dir, e.bundle.Digest, want.Name, want.Digest)
	}
	return e, nil
}

func (m *Models) read(dir string) (*entry, error) {
	key, err := dir, error(nil)
	if !hub.Is(dir) {
		key, err = filepath.Abs(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("find the model folder %s: %w", dir, err)
	}
	if e := m.known[key]; e != nil {
		return e, nil
	}
	located, err := LocateModel(m.ctx, m.log, dir)
	if err != nil {
		return nil, err
	}
	folder, err := m.folder(located)
	if err != nil {
		return nil, err
	}
	bundle, err := ort.OpenBundleWith(folder, ort.LogProgress(m.log))
	if err != nil {
		return nil, err
	}
	tokenizer, err := tokenize.Load(bundle.Tokenizer)
	if err != nil {
		return nil, err
	}
	e := &entry{located: located, bundle: bundle, tokenizer: tokenizer, loaded: map[variant]*loaded{}, files: map[string]fs.FileInfo{}}
	for _, f := range bundle.Files {
		path := filepath.Join(folder, filepath.FromSlash(f.Name))
		if e.files[path], err = os.Stat(path); err != nil {
			return nil, fmt.Errorf("read the model folder %s: %w", folder, err)
		}
	}
	m.known[key] = e
	return e, nil
}

// Init loads ONNX Runtime, once.
func (m *Models) Init() error {
	_ = m.lock(context.Background())
	defer m.unlock()
	return m.init(m.cfg.ORT.Devices()[0])
}

func (m *Models) init(device string) error {
	if m.inited {
		return nil
	}
	for _, d := range slices.Concat(m.cfg.ORT.Devices(), m.cfg.ORT.DraftDevices()) {
		if strings.HasPrefix(d, "cuda") { // a process has one library, and that of a GPU runs cpu too
			device = d
		}
	}
	lib, err := library.FindFor(device, m.cfg.ORT.Library)
	if err != nil {
		return err
	}
	if err := ort.Init(lib); err != nil {
		return err
	}
	m.inited = true
	m.log.Debug("ONNX Runtime loaded", "version", ort.Version(), "library", lib)
	return nil
}

func (m *Models) load(e *entry, s int, v variant) (*ort.Model, error) {
	if err := m.init(v.device); err != nil {
		return nil, err
	}
	if v.context >= e.bundle.Context {
		v.context = 0
	}
	l := e.loaded[v]
	if l == nil {
		lanes, auto, err := m.cfg.Lanes.Count()
		if err != nil {
			return nil, err
		}
		model, err := ort.Load(e.bundle, ort.Options{
			Threads: m.cfg.ORT.Threads, Device: v.device, ProviderOptions: m.providerOptions(v.device),
			Context: v.context, Progress: ort.LogProgress(m.log),
		})
		if err != nil {
			return nil, err
		}
		if why := model.Ragged(); why != nil && lanes > 1 && !auto {
			m.log.Warn("lanes run one after the other", "model", e.bundle.String(), "why", why)
		}
		l = &loaded{model: model}
		e.loaded[v] = l
	}
	if l.tested < s {
		if err := l.model.SelfTest(s); err != nil {
			return nil, err
		}
		l.tested = s
	}
	return l.model, nil
}

func (m *Models) closed(d *ort.Decoder) {
	if err := d.Close(); err != nil {
		m.log.Warn("close a decoder", "err", err)
	}
}

// Check says which file of a loaded model is no longer what was loaded. Weights
// are mapped from their files: one that is written over in place changes the
// model under its users, and one that is cut short ends the process (SIGBUS).
func (m *Models) Check() error {
	_ = m.lock(context.Background())
	defer m.unlock()
	for dir, e := range m.known {
		if len(e.loaded) == 0 {
			continue
		}
		for path, was := range e.files {
			now, err := os.Stat(path)
			if err != nil {
				return fmt.Errorf("the model %s is in use and its files are gone: put models into folders of their own and leave them there: %w", dir, err)
			}
			if !os.SameFile(now, was) || now.Size() != was.Size() || !now.ModTime().Equal(was.ModTime()) {
				return fmt.Errorf("the file %s was changed while its model is in use: put another model into a folder of its own, and start the worker again", path)
			}
		}
	}
	return nil
}

// closeWait is how long Close waits for a model that is being loaded.
const closeWait = 200 * time.Millisecond

// Close lets all models go. Decoders must have been released. What is being
// loaded for nobody is left to the end of the process.
func (m *Models) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	if m.lock(ctx) != nil {
		return
	}
	defer m.unlock()
	for _, e := range m.known {
		for _, l := range e.loaded {
			if err := l.model.Close(); err != nil {
				m.log.Warn("close a model", "err", err)
			}
		}
	}
	m.known, m.bandwidth = map[string]*entry{}, map[*ort.Model]float64{}
}

func choose(first, second string) string {
	if first != "" {
		return first
	}
	return second
}
