package devservers

import (
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// The kernel treats the end of the thread that forked as the end of the parent.
func TestChildOutlivesItsThread(t *testing.T) {
	t.Parallel()
	var r *Redis
	onEndingThread(func() { r, _ = StartRedis(within(t), RedisOptions{}) })
	if r == nil {
		t.Fatal("got no Redis, want one")
	}
	defer r.Stop(within(t))
	c := redisClient(t, r)
	for range 50 {
		if err := c.Ping(within(t)).Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(pollInterval)
	}
}

func onEndingThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // without an unlock the thread ends with the goroutine
		if syscall.Gettid() != os.Getpid() {
			f()
			return
		}
		defer runtime.UnlockOSThread() // but not the main thread
		onEndingThread(f)
	}()
	<-done
}
