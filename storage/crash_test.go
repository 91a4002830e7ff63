package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/draftmill/draftmill/storage/bucket"
)

// helperEnv makes the test binary do one thing to a job and end: see helper.
const helperEnv = "STORAGE_TEST_HELPER"

// A helperTask is what a helper process does. It kills itself at the KillAt-th
// step (from 0) of the protocol; negative, never.
type helperTask struct {
	Do     string // "commit", "resume" (commit what is missing), "finalize" or "recover"
	Dir    string
	Mode   string
	Shards int // all shards below this, in turn
	Worker string
	KillAt int
}

func helper(what string) int {
	var task helperTask
	if err := json.Unmarshal([]byte(what), &task); err != nil {
		fmt.Println(err)
		return 2
	}
	seen := 0
	step = func(string) {
		if seen == task.KillAt {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way
		}
		seen++
	}
	if err := task.run(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func (task helperTask) run() error {
	j, err := OpenJob(task.Dir)
	if err != nil {
		return err
	}
	switch task.Do {
	case "finalize":
		_, err := j.Finalize(context.Background())
		return err
	case "recover":
		return j.Recover(context.Background())
	}
	for shard := range task.Shards {
		if task.Do == "resume" {
			if ok, err := j.Committed(context.Background(), task.Mode, shard); ok || err != nil {
				if err != nil {
					return err
				}
				continue
			}
		}
		w, err := j.NewShardWriter(task.Mode, shard)
		if err != nil {
			return err
		}
		for i := range int64(shardRows) {
			c := fakeCompletion(int64(shard)*shardRows + i)
			c.Worker = task.Worker
			if err := errors.Join(w.AddCompletion(c), w.AddLoop(fakeLoop(i))); err != nil {
				return err
			}
		}
		won, err := w.Commit(context.Background())
		if err != nil {
			return err
		}
		if won {
			fmt.Println("won", shard)
		}
	}
	return nil
}

func (task helperTask) command() *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperEnv+"="+string(must(json.Marshal(task))))
	return cmd
}

// killed runs the task and tells whether it was killed on its way.
func (task helperTask) killed(t *testing.T) bool {
	t.Helper()
	out, err := task.command().CombinedOutput()
	if err == nil {
		return false
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	t.Fatalf("%+v: %v: %s", task, err, out)
	return false
}

// checkReaders reads whatever a reader's globs find. Everything there must be
// whole, at any time.
func checkReaders(t *testing.T, j *Job) {
	t.Helper()
	completions, _ := filepath.Glob(j.path("completions", "*", "*"))
	loops, _ := filepath.Glob(j.path("loops", "*", "*"))
	n := 0
	for _, path := range completions {
		if err := readFile(completionTable, path, "", func(Completion) error { n++; return nil }); err != nil {
			t.Error(err)
		}
	}
	for _, path := range loops {
		if err := readFile(loopTable, path, "", func(Loop) error { n++; return nil }); err != nil {
			t.Error(err)
		}
	}
	if n != shardRows*(len(completions)+len(loops)) {
		t.Errorf("%d rows in %d files", n, len(completions)+len(loops))
	}
	if ok, _ := bucket.Exists(t.Context(), j.b, successFile); ok {
		if _, err := j.Manifest(); err != nil {
			t.Errorf("_SUCCESS without a manifest: %v", err)
		}
	}
}

// checkComplete finalizes a job and compares everything in it with what an
// undisturbed run leaves.
func checkComplete(t *testing.T, j *Job, mode string, shards int) {
	t.Helper()
	if done, err := j.Finalize(t.Context()); err != nil || !done || !j.Done() {
		t.Fatalf("finalize: %v %v", done, err)
	}
	var rows []int64
	if err := j.ReadCompletions(mode, func(c Completion) error { rows = append(rows, c.Row); return nil }); err != nil {
		t.Fatal(err)
	}
	want := []string{successFile, planFile}
	for s := range shards {
		want = append(want, fmt.Sprintf("_shards/mode=%s/part-%05d.json", mode, s), finalKey("completions", mode, s), finalKey("loops", mode, s))
	}
	want = append(want, jobFile, manifestFile)
	slices.Sort(want)
	if got := tree(t, j.Dir()); !slices.Equal(got, want) {
		t.Errorf("files\n got %q\nwant %q", got, want)
	}
	for i, row := range rows {
		if row != int64(i) {
			t.Fatalf("rows %v", rows)
		}
	}
	if len(rows) != shards*shardRows {
		t.Errorf("%d rows", len(rows))
	}
	checkReaders(t, j)
}

func plannedJob(t *testing.T, shards int) *Job {
	t.Helper()
	j := newJob(t)
	if err := j.WritePlan(shards, int64(shards*shardRows), []string{"sps"}); err != nil {
		t.Fatal(err)
	}
	return j
}

// reopen is what the next process sees.
func reopen(t *testing.T, j *Job) *Job {
	t.Helper()
	again, err := OpenJob(j.Dir())
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// A worker killed at any step of a commit leaves a shard that is either
// committed, and then its rows are the result, or not, and then the next
// writer's are.
func TestKillAtEveryStepOfACommit(t *testing.T) {
	t.Parallel()
	var committed []bool // after a kill at each step
	for at := 0; ; at++ {
		j := plannedJob(t, 1)
		if !(helperTask{Do: "commit", Dir: j.Dir(), Mode: "sps", Shards: 1, Worker: "first", KillAt: at}).killed(t) {
			checkComplete(t, reopen(t, j), "sps", 1)
			break
		}
		checkReaders(t, j)
		j = reopen(t, j)
		if at%2 == 0 { // a writer that did not ask first must find the same
			if err := j.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			ok, err := j.Committed(t.Context(), "sps", 0)
			if err != nil {
				t.Fatal(err)
			}
			committed = append(committed, ok)
			checkReaders(t, j)
			if won := commitShard(t, j, "sps", 0, "second"); won == ok {
				t.Errorf("killed at step %d: committed %v, and then another writer won: %v", at, ok, won)
			}
		} else {
			committed = append(committed, !commitShard(t, j, "sps", 0, "second"))
		}
		worker := map[bool]string{true: "first", false: "second"}[committed[at]]
		if err := j.ReadCompletions("sps", func(c Completion) error {
			if c.Worker != worker {
				t.Errorf("killed at step %d: the result is of the %s writer", at, c.Worker)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		checkComplete(t, j, "sps", 1)
	}
	// One instant divides: not committed before it, committed after.
	first := slices.Index(committed, true)
	if len(committed) < 9 || first < 3 || slices.Contains(committed[first:], false) {
		t.Errorf("committed after a kill at each step: %v", committed)
	}
}

func TestKillAtEveryStepOfFinalize(t *testing.T) {
	t.Parallel()
	for at := 0; ; at++ {
		j := plannedJob(t, 1)
		commitShard(t, j, "sps", 0, "w")
		killed := helperTask{Do: "finalize", Dir: j.Dir(), KillAt: at}.killed(t)
		checkReaders(t, j)
		checkComplete(t, reopen(t, j), "sps", 1)
		if !killed {
			if at < 3 {
				t.Errorf("only %d steps", at)
			}
			return
		}
	}
}

// A result that was damaged afterwards is withdrawn, whenever that is
// interrupted, and made again.
func TestKillAtEveryStepOfAWithdrawal(t *testing.T) {
	t.Parallel()
	for at := 0; ; at++ {
		j := plannedJob(t, 2)
		for shard := range 2 {
			commitShard(t, j, "sps", shard, "w")
		}
		checkComplete(t, j, "sps", 2)
		path := j.path(finalKey("loops", "sps", 1))
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/2] ^= 1
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		killed := helperTask{Do: "recover", Dir: j.Dir(), KillAt: at}.killed(t)
		if j.Done() {
			t.Errorf("killed at step %d: done, with a damaged shard found", at)
		}
		j = reopen(t, j)
		if err := j.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		for shard, want := range []bool{true, false} {
			if ok, err := j.Committed(t.Context(), "sps", shard); ok != want || err != nil {
				t.Errorf("killed at step %d: shard %d committed: %v %v", at, shard, ok, err)
			}
		}
		if done, err := j.Finalize(t.Context()); done || err != nil {
			t.Errorf("killed at step %d: finalize: %v %v", at, done, err)
		}
		checkReaders(t, j)
		if !commitShard(t, j, "sps", 1, "w") {
			t.Errorf("killed at step %d: nobody can commit again", at)
		}
		checkComplete(t, j, "sps", 2)
		if !killed {
			return
		}
	}
}

// Processes that commit the same shards at once: each shard has one winner,
// the result is the winner's, and a reader sees whole files all the time.
func TestProcessesCommitTheSameShards(t *testing.T) {
	t.Parallel()
	const shards, processes = 6, 4
	j := plannedJob(t, shards)
	var mu sync.Mutex
	winner := map[int]string{}
	var wg sync.WaitGroup
	for p := range processes {
		wg.Go(func() {
			worker := fmt.Sprint("w", p)
			out, err := helperTask{Do: "commit", Dir: j.Dir(), Mode: "sps", Shards: shards, Worker: worker, KillAt: -1}.command().CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for line := range strings.Lines(string(out)) {
				if n, ok := strings.CutPrefix(line, "won "); ok {
					shard, _ := strconv.Atoi(strings.TrimSpace(n))
					if winner[shard] != "" {
						t.Errorf("shard %d has two winners", shard)
					}
					winner[shard] = worker
				}
			}
		})
	}
	over := make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	for open := true; open; {
		select {
		case <-over:
			open = false
		default:
		}
		checkReaders(t, j)
	}
	if len(winner) != shards {
		t.Fatalf("winners %v", winner)
	}
	if err := j.ReadCompletions("sps", func(c Completion) error {
		if c.Worker != winner[int(c.Row)/shardRows] {
			t.Errorf("row %d is of %s, the winner is %s", c.Row, c.Worker, winner[int(c.Row)/shardRows])
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	checkComplete(t, j, "sps", shards)
}

// Two workers at a time, killed after any time, until the job is complete.
func TestKillAtAnyTime(t *testing.T) {
	t.Parallel()
	const shards = 12
	j := plannedJob(t, shards)
	kills := 0
	for round := 0; ; round++ {
		var wg sync.WaitGroup
		var clean [2]bool
		for p := range clean {
			cmd := helperTask{Do: "resume", Dir: j.Dir(), Mode: "sps", Shards: shards, Worker: fmt.Sprint("w", p), KillAt: -1}.command()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			timer := time.AfterFunc(time.Duration(4*round+5*p)*time.Millisecond, func() { cmd.Process.Kill() })
			wg.Go(func() {
				clean[p] = cmd.Wait() == nil
				timer.Stop()
			})
		}
		wg.Wait()
		checkReaders(t, j)
		for _, ok := range clean {
			if !ok {
				kills++
			}
		}
		if clean[0] || clean[1] || round > 40 {
			break
		}
	}
	if kills < 3 {
		t.Errorf("only %d kills: the test does not disturb", kills)
	}
	j = reopen(t, j)
	for shard := range shards { // what all the disturbed rounds may have left
		if ok, err := j.Committed(t.Context(), "sps", shard); err != nil {
			t.Fatal(err)
		} else if !ok {
			commitShard(t, j, "sps", shard, "w2")
		}
	}
	checkComplete(t, j, "sps", shards)
}
