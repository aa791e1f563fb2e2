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

// cpuTime returns the CPU time of this process and its descendants, including those that have ended.
func cpuTime() (time.Duration, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	children, used := map[int][]int{}, map[int]time.Duration{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, parent, ticks, err := parseStat(string(text))
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", path, err)
		}
		children[parent] = append(children[parent], pid)
		used[pid] = time.Duration(ticks) * clockTick
	}
	total, family := time.Duration(0), []int{os.Getpid()}
	for len(family) > 0 {
		pid := family[0]
		total += used[pid]
		family = append(family[1:], children[pid]...)
	}
	return total, nil
}

// parseStat parses a line as in proc_pid_stat(5). ticks are those of the process and of its children that have ended.
func parseStat(line string) (pid, parent, ticks int, err error) {
	columns := strings.Fields(
		line[strings.LastIndexByte(line, ')')+1:],
	) // from the third on; the second is the program's name, and may have spaces
	if len(columns) < 15 {
		return 0, 0, 0, fmt.Errorf("cannot parse the line %q", line)
	}
	first, _, _ := strings.Cut(line, " ")
	numbers := make([]int, 0, 6)
	for _, text := range append([]string{first, columns[1]}, columns[11:15]...) {
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, 0, 0, err
		}
		numbers = append(numbers, n)
	}
	return numbers[0], numbers[1], numbers[2] + numbers[3] + numbers[4] + numbers[5], nil
}
