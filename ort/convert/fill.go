package convert

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/draftmill/draftmill/ort/convert/tensor"
)

// filling writes one blob after the other to the file of external data, each
// with all processors: they take runs of rows, and no result depends on who
// takes which.
type filling struct {
	ctx   context.Context
	file  *os.File
	blobs []blob
	at    int // the blob under way
	done  func(bytes int64)

	matrix []byte // for turned matrices
}

// fillAll writes all blobs.
func fillAll(ctx context.Context, file *os.File, blobs []blob, done func(int64)) error {
	f := &filling{ctx: ctx, file: file, blobs: blobs, done: done}
	for f.at = range blobs {
		b := blobs[f.at]
		if err := b.fill(f); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
	return nil
}

// write writes bytes of the blob under way, or of one that is so many behind it.
func (f *filling) writeBehind(behind int, p []byte, at int64) error {
	b := f.blobs[f.at+behind]
	if at+int64(len(p)) > b.size {
		return fmt.Errorf("%d bytes at %d do not fit into %d", len(p), at, b.size)
	}
	_, err := f.file.WriteAt(p, b.offset+at)
	f.done(int64(len(p)))
	return err
}

func (f *filling) write(p []byte, at int64) error { return f.writeBehind(0, p, at) }

// runs shares rows out among all processors in runs of so many. worker is called
// once for each and returns what does a run.
func (f *filling) runs(rows, run int, worker func() func(from, to int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	var once sync.Once
	var failed error
	stop := func(err error) {
		once.Do(func() { failed = err })
		next.Store(int64(rows))
	}
	for range min(runtime.GOMAXPROCS(0), (rows+run-1)/run) {
		wg.Go(func() {
			do := worker()
			for {
				from := int(next.Add(int64(run))) - run
				if from >= rows {
					return
				}
				if err := f.ctx.Err(); err != nil {
					stop(context.Cause(f.ctx))
					return
				}
				if err := do(from, min(from+run, rows)); err != nil {
					stop(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return failed
}

// chunk is about how many bytes are written at a time.
const chunk = 1 << 20

// parallelRows writes rows of so many bytes; newWorker returns what makes one.
func (f *filling) parallelRows(rows, rowBytes int, newWorker func() func(row int, dst []byte)) error {
	run := max(1, chunk/rowBytes)
	return f.runs(rows, run, func() func(from, to int) error {
		row, buffer := newWorker(), make([]byte, run*rowBytes)
		return func(from, to int) error {
			for r := from; r < to; r++ {
				row(r, buffer[(r-from)*rowBytes:][:rowBytes])
			}
			return f.write(buffer[:(to-from)*rowBytes], int64(from)*int64(rowBytes))
		}
	})
}

// rows writes a float weight by rows.
func (f *filling) rows(w *weight, t element) error {
	return f.parallelRows(w.rows, w.cols*t.width(), func() func(int, []byte) {
		x := make([]float32, w.cols)
		return func(row int, dst []byte) {
			w.read(x, row)
			putFloats(dst, x, t)
		}
	})
}

// turned writes a float weight by columns. All of it is in memory meanwhile.
func (f *filling) turned(w *weight, t element) error {
	const tile = 32 // rows, so that writes are as long as a cache line
	width := t.width()
	if size := w.rows * w.cols * width; cap(f.matrix) < size {
		f.matrix = nil // before the larger one is made
		f.matrix = make([]byte, size)
	} else {
		f.matrix = f.matrix[:size]
	}
	err := f.runs(w.rows, tile, func() func(from, to int) error {
		x, stored := make([]float32, w.cols), make([]byte, tile*w.cols*width)
		return func(from, to int) error {
			for r := from; r < to; r++ {
				w.read(x, r)
				putFloats(stored[(r-from)*w.cols*width:], x, t)
			}
			turn(f.matrix[from*width:], stored, to-from, w.cols, w.rows*width, width)
			return nil
		}
	})
	if err != nil {
		return err
	}
	for at := 0; at < len(f.matrix); at += 16 * chunk {
		if err := f.write(f.matrix[at:min(at+16*chunk, len(f.matrix))], int64(at)); err != nil {
			return err
		}
	}
	return nil
}

// turn writes src, [rows, cols] numbers, by columns; these are stride bytes
// apart in dst.
func turn(dst, src []byte, rows, cols, stride, width int) {
	for c := range cols {
		line := dst[c*stride:]
		for r := range rows {
			from := (r*cols + c) * width
			if width == 2 {
				line[2*r], line[2*r+1] = src[from], src[from+1]
			} else {
				copy(line[4*r:4*r+4], src[from:from+4])
			}
		}
	}
}

// blocks writes a weight in blocks: its integers, and behind them the scales and
// the zero points, which are the next blobs. Where rounded scales would lose, and
// the type has room for others, it is quantized again with such.
func (f *filling) blocks(w *weight, s scheme, kept bool, scaleType element) error {
	largest, err := f.blocksRounded(w, s, kept, scaleType, s.rounded(scaleType))
	switch {
	case err != nil || kept || !tooCoarse(largest):
		return err
	case scaleType != float32Type && infinite(largest):
		return fmt.Errorf("its numbers are too large for scales of 16 bits; take the device cpu")
	case scaleType != float32Type:
		return nil
	}
	blobs := f.blobs[f.at:][:2]
	if s.asymmetric {
		blobs = f.blobs[f.at:][:3]
	}
	for _, b := range blobs {
		f.done(-b.size)
	}
	_, err = f.blocksRounded(w, s, kept, scaleType, notRounded)
	return err
}

// blocksRounded returns the magnitude of the largest scale, which is infinite where
// it is beyond what scales are rounded to.
func (f *filling) blocksRounded(w *weight, s scheme, kept bool, scaleType element, round rounding) (largest float32, err error) {
	blocks, rowBytes, width := s.blocks(w.cols), s.rowBytes(w.cols), scaleType.width()
	zeroBytes := 0
	switch {
	case s.asymmetric && kept:
		zeroBytes = blocks * width
	case s.asymmetric:
		zeroBytes = s.zeroBytes(w.cols)
	}
	run := max(1, chunk/rowBytes)
	var most atomic.Uint32 // magnitudes of floats are in the order of their bits
	err = f.runs(w.rows, run, func() func(from, to int) error {
		x, scales, minima := make([]float32, w.cols), make([]float32, blocks), make([]float32, blocks)
		q, stored, zeros := make([]byte, run*rowBytes), make([]byte, run*blocks*width), make([]byte, run*zeroBytes)
		return func(from, to int) error {
			var here float32
			for r := from; r < to; r++ {
				i := r - from
				z := zeros[i*zeroBytes:][:zeroBytes]
				if kept {
					p, at := w.at(r)
					keep(p.t.Format, p.t.Row(at), q[i*rowBytes:][:rowBytes], scales, minima)
					if s.asymmetric {
						putFloats(z, minima, scaleType)
					}
				} else {
					w.read(x, r)
					s.row(x, q[i*rowBytes:][:rowBytes], scales, z, round)
				}
				for _, scale := range scales {
					if scale != scale {
						return fmt.Errorf("row %d holds infinite numbers, or none (NaN)", r)
					}
					here = max(here, magnitude(scale))
				}
				putFloats(stored[i*blocks*width:], scales, scaleType)
			}
			for old := most.Load(); math.Float32bits(here) > old && !most.CompareAndSwap(old, math.Float32bits(here)); {
				old = most.Load()
			}
			n := to - from
			if err := f.write(q[:n*rowBytes], int64(from)*int64(rowBytes)); err != nil {
				return err
			}
			if err := f.writeBehind(1, stored[:n*blocks*width], int64(from)*int64(blocks*width)); err != nil || zeroBytes == 0 {
				return err
			}
			return f.writeBehind(2, zeros[:n*zeroBytes], int64(from)*int64(zeroBytes))
		}
	})
	return math.Float32frombits(most.Load()), err
}

// keep takes over a row of GGUF blocks: their integers in MatMulNBits' order,
// their scales, and for Q4_1 the zero points that their minima amount to.
func keep(format tensor.Format, src, q []byte, scales, zeros []float32) {
	for b := range scales {
		switch format {
		case tensor.Q4_0:
			block := src[b*18:][:18]
			scales[b] = tensor.Half(binary.LittleEndian.Uint16(block))
			reorder(q[b*16:][:16], block[2:])
		case tensor.Q4_1:
			block := src[b*20:][:20]
			scales[b] = tensor.Half(binary.LittleEndian.Uint16(block))
			least := tensor.Half(binary.LittleEndian.Uint16(block[2:]))
			if zeros[b] = 0; scales[b] != 0 {
				zeros[b] = -least / scales[b]
			}
			reorder(q[b*16:][:16], block[4:])
		case tensor.Q8_0:
			block := src[b*34:][:34]
			scales[b] = tensor.Half(binary.LittleEndian.Uint16(block))
			for j, n := range block[2:] {
				q[b*32+j] = n ^ 0x80 // signed to unsigned around 128
			}
		}
	}
}

// reorder puts 4-bit integers next to each other: GGUF has the number j and the
// number j+16 of a block in a byte, MatMulNBits the numbers 2j and 2j+1.
func reorder(dst, src []byte) {
	for j := range 8 {
		a, b := src[2*j], src[2*j+1]
		dst[j] = a&15 | b<<4
		dst[j+8] = a>>4 | b&0xf0
	}
}
