package testkit

import (
	"runtime"
	"time"
)

// HeapGrowth returns by how many bytes the heap of the process grew at most while f ran. Tests that use it must not run
// in parallel with others.
func HeapGrowth(f func()) uint64 {
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	done, peak := make(chan struct{}), make(chan uint64)
	go func() {
		peakHeap := before.HeapAlloc
		for {
			runtime.ReadMemStats(&now)
			peakHeap = max(peakHeap, now.HeapAlloc)
			select {
			case <-done:
				peak <- peakHeap - before.HeapAlloc
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	f()
	close(done)
	return <-peak
}
