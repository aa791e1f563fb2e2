package devservers

import (
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// A child outlives the thread that started it, although the kernel signals a parent's death when this thread ends.
func TestChildOutlivesThread(t *testing.T) {
	t.Parallel()
	var r *Redis
	onEndingThread(func() { r, _ = StartRedis(testContext(t), RedisOptions{}) })
	if r == nil {
		t.Fatal("got no Redis, want one")
	}
	defer r.Stop(testContext(t))
	c := redisClient(t, r)
	for range 50 {
		if err := c.Ping(testContext(t)).Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(pollInterval)
	}
}

// onEndingThread calls f on a thread that ends after it.
func onEndingThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // without an unlock the thread ends with the goroutine
		if syscall.Gettid() != os.Getpid() {
			f()
			return
		}
		defer runtime.UnlockOSThread() // the main thread cannot end: try another one
		onEndingThread(f)
	}()
	<-done
}
