package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const clockTick = 10 * time.Millisecond // the unit of /proc's times, on every architecture of Go

// cpuTimes returns the CPU time of a process and its descendants, by program.
func cpuTimes(root int) (map[string]time.Duration, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("read CPU times: this system has no /proc")
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
			return nil, fmt.Errorf("cannot parse %s: %q", path, text)
		}
		pid, _ := strconv.Atoi(strings.TrimSpace(head))
		parent, _ := strconv.Atoi(columns[1])
		ticks := 0
		for _, column := range columns[11:15] { // of the process, and of its children that have ended
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
