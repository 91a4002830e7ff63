package ort

import (
	"bytes"
	"runtime"
	"sync"
	"testing"
	"unsafe"
)

// TestStream sends inputs through the ring of a stream, by way of a driver of the
// test's own, whose copies arrive when they are waited for: each is what it was when
// its run was launched, however often its memory was written to since then, and the
// ring is waited for when no piece of it is free, and not before.
func TestStream(t *testing.T) {
	needLibrary(t)
	const size = 8 << 10
	s, err := streamOf(driverT(t), 0, size)
	if err != nil {
		t.Fatal(err)
	}
	if s.option() == "0" {
		t.Error("the stream has no name")
	}
	ids, table, large := blockT(t, 600), blockT(t, 300), blockT(t, size)
	ins, free, err := inputsOf(&ids, &table, &large)
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	type sent struct {
		at   unsafe.Pointer
		want []byte
	}
	began := Waits()
	var all []sent
	for run := range 5 { // of 1024 + 512 bytes each
		for _, b := range []*block{&ids, &table} {
			for i := range view[byte](b, 0, b.size) {
				view[byte](b, 0, b.size)[i] = byte(i + 7*run)
			}
		}
		x, err := s.stage(&memory{}, ins[:2])
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range []*block{&ids, &table} {
			all = append(all, sent{ins[i].data, bytes.Clone(view[byte](b, 0, b.size))})
		}
		x.end()
		if ins[0].data != ids.data || ins[1].data != table.data {
			t.Fatal("the inputs are not the host's again")
		}
	}
	arrived := func() {
		for i, x := range all {
			if got := unsafe.Slice((*byte)(x.at), len(x.want)); !bytes.Equal(got, x.want) {
				t.Errorf("input %d is not what it was", i)
			}
		}
		all = all[:0]
	}
	if n := Waits() - began; n != 0 {
		t.Errorf("%d waits while there was room", n)
	}
	if err := s.wait(); err != nil {
		t.Fatal(err)
	}
	arrived()
	s.waited(s.launched(-1))
	for range 20 {
		x, err := s.stage(&memory{}, ins[:2])
		if err != nil {
			t.Fatal(err)
		}
		x.end()
	}
	if n := Waits() - began - 1; n != 3 { // 5 runs a lap
		t.Errorf("%d waits in 20 runs", n)
	}
	// Too large an input is left where it is, after a wait.
	before := Waits()
	x, err := s.stage(&memory{}, ins)
	if err != nil {
		t.Fatal(err)
	}
	if ins[2].data != large.data || Waits() == before {
		t.Error("an input of the ring's size")
	}
	x.end()
	// Fixed addresses, and back.
	d := &device{stream: s}
	to, back := blockT(t, 64), blockT(t, 64)
	copy(view[byte](&ids, 0, 64), "to an address that stays")
	if err := d.copyBytes(&to, &ids, 64, true); err != nil {
		t.Fatal(err)
	}
	if err := d.copyBytes(&back, &to, 64, false); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(view[byte](&back, 0, 64), view[byte](&ids, 0, 64)) {
		t.Error("what was copied is not what came back")
	}
	if _, err := streamOf(driverT(t), 3, size); err == nil || err.Error() != "make a stream: cuDeviceGet: CUDA driver error 101" {
		t.Errorf("a GPU that is not there: got %v", err)
	}
}

// TestStreamShared: several goroutines launch runs in one stream, some of which they
// wait for. No piece is given out again before its run has been launched.
func TestStreamShared(t *testing.T) {
	needLibrary(t)
	s, err := streamOf(driverT(t, "-DAT_ONCE"), 0, 4<<10)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		b := blockT(t, 300)
		ins, free, err := inputsOf(&b)
		if err != nil {
			t.Fatal(err)
		}
		defer free()
		wg.Go(func() {
			for run := range 300 {
				for i := range view[byte](&b, 0, 300) {
					view[byte](&b, 0, 300)[i] = byte(g*50 + run%50)
				}
				x, err := s.stage(&memory{}, ins)
				if err != nil {
					t.Error(err)
					return
				}
				to := s.launched(x.piece)
				runtime.Gosched() // others go on before the run reads
				if !bytes.Equal(unsafe.Slice((*byte)(ins[0].data), 300), view[byte](&b, 0, 300)) {
					t.Errorf("goroutine %d, run %d reads another's input", g, run)
				}
				if run%3 == g%3 {
					s.waited(to)
				}
				x.end()
			}
		})
	}
	wg.Wait()
	if len(s.open) > 0 || s.done > s.head {
		t.Errorf("%d pieces are open, %d of %d bytes free", len(s.open), s.done, s.head)
	}
}
