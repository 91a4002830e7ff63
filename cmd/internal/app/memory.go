package app

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// assumedMemory stands for the free memory of a machine that does not tell.
const assumedMemory = 4 << 30

// freeMemory is the memory, in bytes, that the machine can still give: what
// Linux calls available, or what is left of the control group's limit.
func freeMemory() int {
	free := assumedMemory
	if n, err := meminfo("/proc/meminfo", "MemAvailable:"); err == nil {
		free = n
	}
	limit, err := number("/sys/fs/cgroup/memory.max")
	if err != nil {
		return free // "max", or no such file
	}
	used, err := number("/sys/fs/cgroup/memory.current")
	if err != nil {
		return free
	}
	return min(free, max(0, limit-used))
}

// meminfo reads one line of Linux' /proc/meminfo, which counts in kB.
func meminfo(file, key string) (int, error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 3 && fields[0] == key {
			kb, err := strconv.Atoi(fields[1])
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, key)
}

func number(file string) (int, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}
