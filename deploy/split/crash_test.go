package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/datastores"
	"github.com/ironplane/ironplane/deploy/internal/ports"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/devservers/child"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/system"
)

// TestCrash has callers make changes at random while whatever takes part in that is killed, one after the other, and one
// service's schema restored from a backup that was made meanwhile. In the end each change that was answered is in the log
// once, but for those that only the lost schema knew of, nothing contradicts anything else, and what events and mails are for
// has come to servers that misbehave.
func TestCrash(t *testing.T) {
	t.Parallel()
	needsProc(t)
	rounds, callers, restored := 8, 6, []string{"identity", "network", "pxe", "system"}
	rand.Shuffle(len(restored), func(i, j int) { restored[i], restored[j] = restored[j], restored[i] })
	if !*full {
		restored = restored[:1]
	} else {
		rounds = 200
	}
	if postgresTool("pg_dump") == "" || postgresTool("pg_restore") == "" {
		t.Log("nothing is restored: that needs pg_dump and pg_restore")
		restored = nil
	}
	config := datastores.Config{Data: t.TempDir()}
	redis := startRedis(t)
	if redis != nil {
		config.RedisURL = redis.url()
	}
	post := newPost(t)
	f, c := startFleet(
		t,
		config,
		append(post.environment(), "IRONPLANE_OWNER_RATE=1000000", "IRONPLANE_OWNER_BURST=1000000", "IRONPLANE_OWNER_CONCURRENCY=1000000")...)
	post.open(c)
	book := newLedger(t, c, post)
	ctx, stop := context.WithCancel(t.Context())
	var hurrying sync.WaitGroup
	hurrying.Go(func() { post.hurry(ctx, f, c) })
	defer hurrying.Wait()
	defer stop()

	killed, round := map[string]int{}, 0
	storm := func(until int) {
		for ; round < until; round++ {
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
			killed[crash(t, f, config, redis, round)]++
		}
	}
	stretch := rounds / (len(restored) + 1)
	for _, service := range restored {
		var b *backup
		book.during(callers, func() {
			storm(round + stretch/2)
			b = backUp(t, f, config, service)
			storm(round + stretch - stretch/2)
		})
		f.killAll(t)
		if service == system.Name {
			post.lost()
		}
		book.during(callers, func() { b.restore(f, book) })
	}
	book.during(callers, func() { storm(rounds) })

	checkCrash(t, f, c, book)
	t.Logf(
		"%d changes were answered, %d refused, %d requests sent again; killed: %v; restored: %v, which %d changes were lost with that nobody "+
			"had heard of",
		book.answered,
		book.refused,
		book.repeated,
		killed,
		restored,
		len(book.unheard),
	)
}

// crash kills one of what a change needs, and starts it again a little later.
func crash(t *testing.T, f *fleet, config datastores.Config, redis *ownRedis, round int) string {
	t.Helper()
	pause := func() { time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond) }
	victims := []string{"postgres", "system", "redis", "network", "flush", "clients", "pxe", "identity", principal.Gateway}
	victim := victims[rand.IntN(len(victims))]
	if round < len(victims) {
		victim = victims[round] // each once
	}
	switch victim {
	case "postgres":
		crashPostgres(t, f, config.Data)
	case "redis":
		if redis != nil {
			redis.kill()
			pause()
			redis.start()
			break
		}
		fallthrough // a stand-in lives in this process
	case "flush":
		flushRedis(t, f)
	case principal.Gateway:
		kill(t, f.processes[victim])
		pause()
		if err := f.startGateway(t.Context(), f.addresses[victim]); err != nil {
			t.Fatal(err)
		}
	default:
		kill(t, f.processes[victim])
		pause()
		if err := f.startService(t.Context(), victim); err != nil {
			t.Fatal(err)
		}
	}
	return victim
}

// crashPostgres kills one of its processes: it takes that for a crash, throws everybody out and recovers from its log.
// It has to have recovered from the last one: without the process that does it, it ends. So this returns once it has noticed,
// and whoever connects from then on waits until it has recovered.
func crashPostgres(t *testing.T, f *fleet, data string) {
	t.Helper()
	session := openDatabase(t, f, system.Name)
	defer session.Close()
	text, err := os.ReadFile(filepath.Join(data, "postgres", "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	postmaster, err := strconv.Atoi(strings.SplitN(string(text), "\n", 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if all := childrenOf(t, postmaster); len(all) > 0 && syscall.Kill(all[rand.IntN(len(all))].pid, syscall.SIGKILL) == nil {
			var one int
			for noticed := time.Now().Add(5 * time.Second); time.Now().Before(noticed) && session.QueryRow(
				t.Context(), "SELECT 1",
			).Scan(&one) == nil; {
				time.Sleep(5 * time.Millisecond) // nobody is thrown out where the process had just ended by itself
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("got no Postgres process to kill, want one")
		}
	}
}

func flushRedis(t *testing.T, f *fleet) {
	t.Helper()
	url, err := os.ReadFile(f.file("redis-url"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := cache.Open(secret.New(string(url)))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

// ownRedis is one that can be killed, and comes back at the same address.
type ownRedis struct {
	t        *testing.T
	address  string
	password string
	process  *child.Child
}

// startRedis is nil where there is no Redis on the machine.
func startRedis(t *testing.T) *ownRedis {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil
	}
	free, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	r := &ownRedis{t: t, address: free[0], password: fmt.Sprint(rand.Uint64())}
	r.start()
	t.Cleanup(r.kill)
	return r
}

func (r *ownRedis) url() secret.String {
	return secret.New("redis://:" + r.password + "@" + r.address + "/0")
}

func (r *ownRedis) start() {
	r.t.Helper()
	_, port, _ := net.SplitHostPort(r.address)
	cmd := exec.Command("redis-server", "-")
	cmd.Dir = r.t.TempDir()
	cmd.Stdin = strings.NewReader("bind 127.0.0.1\nport " + port + "\nrequirepass " + r.password + "\nsave \"\"\nappendonly no\n")
	var err error
	if r.process, err = child.Start(cmd, syscall.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
}

func (r *ownRedis) kill() {
	_ = syscall.Kill(r.process.PID(), syscall.SIGKILL)
	<-r.process.Done()
}
