package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const clockTick = 10 * time.Millisecond // of what the kernel shows, on every architecture that Go has

// cpuTimes returns the processor time that a process and its descendants have had, by the program's name.
func cpuTimes(root int) (map[string]time.Duration, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("processor time is read from /proc, which this system lacks")
	}
	type process struct {
		name string
		used time.Duration
	}
	processes, children := map[int]process{}, map[int][]int{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		head, tail, _ := strings.Cut(string(text), "(")
		end := strings.LastIndexByte(tail, ')')
		columns := strings.Fields(tail[end+1:]) // from the third on, see proc_pid_stat(5)
		if end < 0 || len(columns) < 15 {
			return nil, fmt.Errorf("%s holds %q", path, text)
		}
		pid, _ := strconv.Atoi(strings.TrimSpace(head))
		parent, _ := strconv.Atoi(columns[1])
		ticks := 0
		for _, column := range columns[11:15] { // its own, and those of its children that ended
			n, _ := strconv.Atoi(column)
			ticks += n
		}
		processes[pid] = process{tail[:end], time.Duration(ticks) * clockTick}
		children[parent] = append(children[parent], pid)
	}
	used := map[string]time.Duration{}
	for family := []int{root}; len(family) > 0; {
		pid := family[0]
		used[processes[pid].name] += processes[pid].used
		family = append(family[1:], children[pid]...)
	}
	return used, nil
}
