package ort
import ("testing";"path/filepath")
func TestTryExporters(t *testing.T) {
	needLibrary(t)
	dirs, _ := filepath.Glob("../testdata/models/*-*")
	for _, d := range dirs {
		t.Run(filepath.Base(d), func(t *testing.T) {
			b, err := OpenBundle(d)
			if err != nil { t.Fatal(err) }
			m, err := Load(b, Options{Lanes: 3, Threads: 1})
			if err != nil { t.Fatal(err) }
			defer m.Close()
			t.Log(b, m.Lanes(), m.OneLane(), b.layout.logits, b.layout.cache)
			if err := m.SelfTest(5); err != nil { t.Error(err) }
		})
	}
	dirs, _ = filepath.Glob("/tmp/mm/out/x-*")
	for _, d := range dirs {
		_, err := OpenBundle(d); t.Log(d, err)
	}
}
