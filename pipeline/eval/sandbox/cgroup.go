package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroup bounds memory and processes of all that a slot runs: one folder of
// version 2, or one each of version 1's controllers memory and pids. A nil
// cgroup does nothing.
type cgroup struct {
	v2     bool
	memory string // folders; equal in version 2
	pids   string
}

// cgroupRoot is where cgroups are mounted.
const cgroupRoot = "/sys/fs/cgroup"

// newGroup makes the folders of a slot, under this process's own cgroup or at
// the root, whichever allows it.
func newGroup(slot int) (*cgroup, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	return newGroupAt(cgroupRoot, string(own), fmt.Sprintf("draftmill-%d-%d", os.Getpid(), slot))
}

func newGroupAt(root, own, name string) (*cgroup, error) {
	paths := map[string]string{} // controller, or "" for version 2, to this process's path
	for line := range strings.Lines(own) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		for _, controller := range strings.Split(f[1], ",") {
			paths[controller] = f[2]
		}
	}
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		for _, at := range []string{paths[""], "/"} {
			parent := filepath.Join(root, at)
			if !delegates(parent) {
				continue
			}
			dir := filepath.Join(parent, name)
			if err := os.Mkdir(dir, 0o755); err == nil {
				return &cgroup{v2: true, memory: dir, pids: dir}, nil
			}
		}
		return nil, errors.New("no cgroup with memory and pids can be made")
	}
	g := &cgroup{}
	for controller, dir := range map[string]*string{"memory": &g.memory, "pids": &g.pids} {
		for _, at := range []string{paths[controller], "/"} {
			made := filepath.Join(root, controller, at, name)
			if err := os.Mkdir(made, 0o755); err == nil {
				*dir = made
				break
			}
		}
		if *dir == "" {
			g.remove()
			return nil, fmt.Errorf("no cgroup with %s can be made", controller)
		}
	}
	return g, nil
}

// delegates tells whether groups made in a folder of version 2 have memory and
// pids, and turns them on where that is allowed.
func delegates(parent string) bool {
	file := filepath.Join(parent, "cgroup.subtree_control")
	has := func() bool {
		data, err := os.ReadFile(file)
		on := strings.Fields(string(data))
		found := 0
		for _, c := range on {
			if c == "memory" || c == "pids" {
				found++
			}
		}
		return err == nil && found == 2
	}
	if has() {
		return true
	}
	_ = os.WriteFile(file, []byte("+memory +pids"), 0o644)
	return has()
}

func (g *cgroup) kind() string {
	if g.v2 {
		return "cgroup v2"
	}
	return "cgroups v1"
}

// spare is what a sandbox needs beside the program: bubblewrap twice, the
// judge, and their memory.
const (
	spareProcesses = 4
	spareMemory    = 64 << 20
)

// enter sets the limits and returns the files by which a process joins.
func (g *cgroup) enter(l Limits) []string {
	memory := strconv.FormatInt(l.Memory+spareMemory, 10)
	set := func(dir, file, value string) {
		// A limit that this kernel lacks (swap, often) is no reason to stop: that
		// the group works is seen when the sandbox is tried.
		_ = os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644)
	}
	set(g.pids, "pids.max", strconv.Itoa(l.Processes+spareProcesses))
	if g.v2 {
		set(g.memory, "memory.max", memory)
		set(g.memory, "memory.swap.max", "0")
		return []string{filepath.Join(g.memory, "cgroup.procs")}
	}
	set(g.memory, "memory.limit_in_bytes", memory)
	set(g.memory, "memory.memsw.limit_in_bytes", memory)
	return []string{filepath.Join(g.memory, "cgroup.procs"), filepath.Join(g.pids, "cgroup.procs")}
}

// kills is how many processes of the group the kernel has killed for memory.
func (g *cgroup) kills() int {
	if g == nil {
		return 0
	}
	file := "memory.oom_control"
	if g.v2 {
		file = "memory.events"
	}
	data, _ := os.ReadFile(filepath.Join(g.memory, file))
	for line := range strings.Lines(string(data)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			count, _ := strconv.Atoi(strings.TrimSpace(n))
			return count
		}
	}
	return 0
}

// kill ends every process of the group.
func (g *cgroup) kill() {
	if g == nil {
		return
	}
	if g.v2 && os.WriteFile(filepath.Join(g.memory, "cgroup.kill"), []byte("1"), 0o644) == nil {
		return
	}
	for _, pid := range g.processes() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func (g *cgroup) processes() []int {
	data, _ := os.ReadFile(filepath.Join(g.pids, "cgroup.procs"))
	var pids []int
	for _, f := range strings.Fields(string(data)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// empty waits until no process of the group is left.
func (g *cgroup) empty() error {
	if g == nil {
		return nil
	}
	for wait := time.Millisecond; len(g.processes()) > 0; wait *= 2 {
		if wait > 5*time.Second {
			return fmt.Errorf("run a program: processes %v of it cannot be ended", g.processes())
		}
		g.kill()
		time.Sleep(wait)
	}
	return nil
}

// remove deletes the folders.
func (g *cgroup) remove() {
	for _, dir := range []string{g.memory, g.pids} {
		if dir != "" {
			_ = syscall.Rmdir(dir)
		}
	}
}
