//go:build chromium

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is headless Chromium, with what its pages complain of.
type browser struct {
	ctx context.Context

	mu   sync.Mutex
	said []string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Fatal("chromium is missing: apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-component-update", true))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	b := &browser{}
	b.ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Run(b.ctx); err != nil { // starts it, and so that it ends with this context and no shorter one
		t.Fatal(err)
	}
	chromedp.ListenTarget(b.ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			for _, a := range e.Args {
				b.said = append(b.said, fmt.Sprintf("console.%s: %s", e.Type, a.Value))
			}
		case *runtime.EventExceptionThrown:
			b.said = append(b.said, e.ExceptionDetails.Error())
		}
	})
	return b
}

// do runs actions, within a minute.
func (b *browser) do(t *testing.T, actions ...chromedp.Action) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// clean fails the test where a page has complained.
func (b *browser) clean(t *testing.T, where string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.said {
		t.Errorf("%s: %s", where, s)
	}
	b.said = nil
}

// layout lists what is wrong with a page: parts wider than the window that do
// not scroll, plots without points, labels of plots that leave them, and letters
// that are hard to tell from what is behind them.
const layout = `(() => {
  const wrong = [];
  if (document.documentElement.scrollWidth > window.innerWidth) wrong.push("the page is wider than the window");
  const plots = document.querySelectorAll("figure svg");
  if (!plots.length) wrong.push("no plot");
  plots.forEach(svg => {
    const name = svg.getAttribute("aria-label"), frame = svg.getBoundingClientRect();
    if (!svg.querySelector("circle, polyline")) wrong.push(name + ": nothing is drawn");
    svg.querySelectorAll("text").forEach(label => {
      const r = label.getBoundingClientRect();
      if (r.left < frame.left - 1 || r.right > frame.right + 1 || r.top < frame.top - 1 || r.bottom > frame.bottom + 1) wrong.push(name + ": the label " + label.textContent + " is cut off");
    });
    if (/NaN|Infinity/.test(svg.innerHTML)) wrong.push(name + ": a point that is no number");
  });
  const shade = colour => { const [r, g, b] = colour.match(/[\d.]+/g).map(v => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\)$|transparent/.test(c)) return c; } return "rgb(255, 255, 255)"; };
  for (const e of document.querySelectorAll("h1, h2, td, th, p, b, pre, pre span, figcaption, summary, .keys span")) {
    if (!e.textContent.trim()) continue;
    const [x, y] = [shade(getComputedStyle(e).color), shade(behind(e))].sort((a, b) => b - a);
    if ((x + .05) / (y + .05) < 3.5) { wrong.push("hard to read: " + e.outerHTML.slice(0, 90)); break; }
  }
  return wrong;
})()`

// TestChromium opens the demo's report, a sweep's page and the live page as
// people do: light, dark, narrow and printed. OUT=DIR keeps the pictures.
func TestChromium(t *testing.T) {
	dir := t.TempDir()
	demo := []string{"--config", "configs/demo.yaml", "--out", dir, "--limit", "24", "--lanes", "4"}
	run(t, "submit", append(demo, "--job", "both", "--n", "2", "--margin", "0.05")...)
	run(t, "submit", "score", "both", "--out", dir)
	run(t, "submit", "report", "both", "--out", dir, "--html", filepath.Join(dir, "report.html"))
	run(t, "submit", append([]string{"sweep", "--k", "0,1,2,4", "--job", "sweep", "--html", filepath.Join(dir, "sweep.html")}, demo...)...)
	pictures := os.Getenv("OUT")
	if pictures == "" {
		pictures = dir
	}
	b := newBrowser(t)
	for _, name := range []string{"report", "sweep"} {
		for _, look := range []struct {
			name, scheme string
			width        int64
		}{{"light", "light", 1200}, {"dark", "dark", 1200}, {"narrow", "light", 390}} {
			var wrong []string
			var picture []byte
			where := name + "-" + look.name
			b.do(t, chromedp.EmulateViewport(look.width, 900),
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look.scheme}}),
				chromedp.Navigate("file://"+filepath.Join(dir, name+".html")),
				chromedp.Evaluate(layout, &wrong), chromedp.FullScreenshot(&picture, 100))
			for _, w := range wrong {
				t.Errorf("%s: %s", where, w)
			}
			b.clean(t, where)
			if err := os.WriteFile(filepath.Join(pictures, where+".png"), picture, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.browses(t, "file://"+filepath.Join(dir, "report.html"))
	b.prints(t)
	b.lives(t, dir)
}

// browses turns the samples' pages and looks for one.
func (b *browser) browses(t *testing.T, url string) {
	t.Helper()
	var first, next, found, tokens string
	b.do(t, chromedp.Navigate(url), chromedp.Text("#where", &first), chromedp.Click("#next"), chromedp.Text("#where", &next),
		chromedp.SendKeys("#find", "MiniEval/7"), chromedp.Text("#where", &found), chromedp.InnerHTML("#samples", &tokens))
	if first != "1 to 8 of 24" || next != "9 to 16 of 24" || found != "1 to 1 of 1" {
		t.Errorf("pages %q, %q, found %q", first, next, found)
	}
	for _, kind := range []string{`class="a"`, "ArS", "SpS"} {
		if !strings.Contains(tokens, kind) {
			t.Errorf("a sample lacks %s:\n%s", kind, tokens)
		}
	}
	b.clean(t, "samples")
}

// prints is the page on paper: light, whatever the screen.
func (b *browser) prints(t *testing.T) {
	t.Helper()
	var paper string
	b.do(t, emulation.SetEmulatedMedia().WithMedia("print").WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}),
		chromedp.Evaluate(`getComputedStyle(document.body).backgroundColor`, &paper),
		chromedp.ActionFunc(func(ctx context.Context) error {
			pdf, _, err := page.PrintToPDF().WithPrintBackground(true).Do(ctx)
			if err == nil && (len(pdf) < 10_000 || !strings.HasPrefix(string(pdf), "%PDF")) {
				err = fmt.Errorf("printed %d bytes", len(pdf))
			}
			return err
		}), emulation.SetEmulatedMedia())
	if paper != "rgb(255, 255, 255)" {
		t.Errorf("paper is %s", paper)
	}
	b.clean(t, "print")
}

// lives watches a job from before its first shard to its end, and ends the
// server as Ctrl-C does.
func (b *browser) lives(t *testing.T, dir string) {
	t.Helper()
	job := command("submit", "--config", "configs/demo.yaml", "--out", dir, "--job", "live", "--shard-rows", "4").start(t)
	until(t, "the job's folder", func() bool { _, err := os.Stat(filepath.Join(dir, "live", "job.json")); return err == nil })
	server := command("submit", "serve", "live", "--out", dir).start(t)
	url := ""
	until(t, "the address", func() bool {
		_, rest, _ := strings.Cut(server.stderr.String(), " at ")
		url, _, _ = strings.Cut(rest, " (")
		return strings.HasPrefix(url, "http://127.0.0.1:")
	})
	var certificate string
	b.do(t, chromedp.Navigate(url),
		chromedp.Poll(`document.getElementById("state").textContent.startsWith("complete: SpS is ")`, nil, chromedp.WithPollingTimeout(50*time.Second)),
		chromedp.Poll(`document.getElementById("report").textContent.includes("Certificate: holds.")`, nil, chromedp.WithPollingTimeout(50*time.Second)),
		chromedp.Text("#modes", &certificate))
	if !strings.Contains(certificate, "20 of 20") {
		t.Errorf("at the end: %s", certificate)
	}
	b.clean(t, "live")
	if code := job.code(t); code != 0 {
		t.Errorf("the job exits with %d", code)
	}
	b.do(t, chromedp.Navigate("about:blank"))
	server.signal(t, syscall.SIGINT)
	if code := server.code(t); code != 0 {
		t.Errorf("submit serve exits with %d: %s", code, &server.stderr)
	}
}
