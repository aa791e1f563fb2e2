//go:build !linux

package main

import "time"

// cpuTime returns 0, since it is only implemented on Linux.
func cpuTime() (time.Duration, error) { return 0, nil }
