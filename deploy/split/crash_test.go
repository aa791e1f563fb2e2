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

// TestCrash kills the processes one after another while callers make random changes. Meanwhile one service's schema
// is restored from a backup. In the end the log has each confirmed change once, except for changes that only the
// lost schema had. Nothing contradicts anything else, and mails and events have arrived at servers that misbehave.
func TestCrash(t *testing.T) {
	t.Parallel()
	requireProc(t)
	rounds, callers, restored := 9, 6, []string{"identity", "network", "pxe", "system"}
	rand.Shuffle(len(restored), func(i, j int) { restored[i], restored[j] = restored[j], restored[i] })
	if !*full {
		restored = restored[:1]
	} else {
		rounds = 200
	}
	if postgresTool("pg_dump") == "" || postgresTool("pg_restore") == "" {
		t.Log("no schema is restored: pg_dump and pg_restore are not installed; Debian's package postgresql-client has them")
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
	var speedingUp sync.WaitGroup
	speedingUp.Go(func() { post.speedUp(ctx, f, c) })
	defer speedingUp.Wait()
	defer stop()

	killed, round := map[string]int{}, 0
	storm := func(until int) {
		for ; round < until; round++ {
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
			killed[crashOne(t, f, config, redis, round)]++
		}
	}
	roundsPerService := rounds / (len(restored) + 1)
	for _, service := range restored {
		var b *backup
		book.runDuring(callers, func() {
			storm(round + roundsPerService/2)
			b = backUp(t, f, config, service)
			storm(round + roundsPerService - roundsPerService/2)
		})
		f.killAll(t)
		if service == system.Name {
			post.addLost()
		}
		book.runDuring(callers, func() { b.restore(f, book) })
	}
	book.runDuring(callers, func() { storm(rounds) })

	checkCrash(t, f, c, book)
	t.Logf(
		"%d changes were made, %d refused, %d requests sent again; killed: %v; restored: %v; %d changes were lost before the log had them",
		book.accepted,
		book.refused,
		book.repeated,
		killed,
		restored,
		len(book.unlogged),
	)
}

// crashOne kills a process, or empties Redis, and starts the process again a little later. The first rounds kill
// each process once.
func crashOne(t *testing.T, f *fleet, config datastores.Config, redis *ownRedis, round int) string {
	t.Helper()
	sleepRandom := func() { time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond) }
	victims := []string{"postgres", "system", "redis", "network", "flush", "clients", "pxe", "identity", principal.Gateway}
	victim := victims[rand.IntN(len(victims))]
	if round < len(victims) {
		victim = victims[round]
	}
	switch victim {
	case "postgres":
		crashPostgres(t, f, config.Data)
	case "redis":
		if redis != nil {
			redis.kill()
			sleepRandom()
			redis.start()
			break
		}
		fallthrough // without redis-server, Redis is an emulation in this process
	case "flush":
		flushRedis(t, f)
	case principal.Gateway:
		kill(t, f.processes[victim])
		sleepRandom()
		if err := f.startGateway(t.Context(), f.addresses[victim]); err != nil {
			t.Fatal(err)
		}
	default:
		kill(t, f.processes[victim])
		sleepRandom()
		if err := f.startService(t.Context(), victim); err != nil {
			t.Fatal(err)
		}
	}
	return victim
}

// crashPostgres kills a process of Postgres. Postgres then closes all connections and recovers from its log. A
// second kill during the recovery would end it for good, so crashPostgres returns once the recovery has begun.
// Later connections wait for its end.
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
	for deadline := time.Now().Add(waitTimeout); ; time.Sleep(10 * time.Millisecond) {
		if all := childrenOf(t, postmaster); len(all) > 0 && syscall.Kill(all[rand.IntN(len(all))].pid, syscall.SIGKILL) == nil {
			var one int
			for noticed := time.Now().Add(5 * time.Second); time.Now().Before(noticed) && session.QueryRow(
				t.Context(), "SELECT 1",
			).Scan(&one) == nil; {
				time.Sleep(5 * time.Millisecond) // a process that had just ended by itself causes no recovery
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

// ownRedis is a Redis server that can be killed and started again at the same address.
type ownRedis struct {
	t        *testing.T
	address  string
	password string
	process  *child.Child
}

// startRedis starts a Redis server, and returns nil if redis-server is not installed.
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
