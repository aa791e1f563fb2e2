package devservers

import (
	"errors"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ironplane/ironplane/pkg/devservers/child"
)

func startRedis(t *testing.T, o RedisOptions) *Redis {
	t.Helper()
	r, err := StartRedis(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Stop(testContext(t)) })
	return r
}

// redisChild skips the test where no redis-server is installed.
func redisChild(t *testing.T, o RedisOptions) (*Redis, *child.Child) {
	t.Helper()
	r := startRedis(t, o)
	if r.IsEmbedded() {
		t.Skip("redis-server is not installed; Debian's package redis-server has it")
	}
	return r, r.server.(*child.Child)
}

func redisClient(t *testing.T, r *Redis) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	o.MaxRetries = -1
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestRedis(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]RedisOptions{"child": {}, "embedded": {Embedded: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !o.Embedded {
				redisChild(t, o)
			}
			r := startRedis(t, o)
			if r.IsEmbedded() != o.Embedded {
				t.Errorf("got an embedded server %t, want %t", r.IsEmbedded(), o.Embedded)
			}
			c := redisClient(t, r)

			set := time.Now()
			if err := c.Set(testContext(t), "brief", 1, time.Second).Err(); err != nil {
				t.Fatal(err)
			}
			if err := c.Set(testContext(t), "long", 1, time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the brief key expires", func() bool { return errors.Is(c.Get(testContext(t), "brief").Err(), redis.Nil) })
			if ttl := c.TTL(testContext(t), "long").Val(); ttl <= 0 || ttl >= time.Hour {
				t.Errorf("got a TTL of %v, want more than 0 and less than an hour", ttl)
			}
			if now, err := c.Time(testContext(t)).Result(); err != nil || now.Before(set.Add(-time.Second)) {
				t.Errorf("TIME: got %v, %v, want %v or later", now, err, set)
			}

			for _, password := range []string{"wrong", ""} {
				other := redis.NewClient(&redis.Options{Addr: r.address, Password: password, MaxRetries: -1})
				err := other.Get(testContext(t), "long").Err()
				other.Close()
				if err == nil || !strings.Contains(err.Error(), "WRONGPASS") && !strings.Contains(err.Error(), "NOAUTH") {
					t.Errorf("password %q: got %v, want WRONGPASS or NOAUTH", password, err)
				}
			}

			if err := r.Err(); err != nil {
				t.Errorf("Err of a running server: %v", err)
			}
			for range 2 {
				if err := r.Stop(testContext(t)); err != nil {
					t.Fatal(err)
				}
			}
			<-r.Done()
			if err := r.Err(); err != nil {
				t.Errorf("Err after Stop: %v", err)
			}
			if conn, err := net.Dial("tcp", r.address); err == nil {
				conn.Close()
				t.Error("got a connection after Stop, want none")
			}
		})
	}
}

func TestRedisFallsBackToEmbedded(t *testing.T) {
	t.Parallel()
	r := startRedis(t, RedisOptions{programs: []string{"/not/there/redis-server"}})
	if !r.IsEmbedded() {
		t.Error("got a Redis from a missing program, want the embedded server")
	}
	if err := redisClient(t, r).Ping(testContext(t)).Err(); err != nil {
		t.Error(err)
	}
}

func TestRedisChild(t *testing.T) {
	t.Parallel()
	r, process := redisChild(t, RedisOptions{})
	c := redisClient(t, r)
	for setting, want := range map[string]string{
		"save": "", "appendonly": "no", "bind": "127.0.0.1", "maxmemory-policy": "allkeys-lru", "maxmemory": "268435456",
	} {
		if got := c.ConfigGet(testContext(t), setting).Val()[setting]; got != want {
			t.Errorf("%s: got %q, want %q", setting, got, want)
		}
	}
	if runtime.GOOS == "linux" {
		proc := "/proc/" + strconv.Itoa(process.PID())
		arguments, err := os.ReadFile(proc + "/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(arguments), r.password) {
			t.Errorf("got the arguments %q, want them without the password", arguments)
		}
		info, err := os.Stat(proc)
		if err != nil {
			t.Fatal(err)
		}
		if info.Sys().(*syscall.Stat_t).Uid == 0 {
			t.Error("got a Redis that runs as root, want another account")
		}
	}

	if err := syscall.Kill(process.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-r.Done()
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("Err: got %v, want an error that says killed", err)
	}
	if err := r.Stop(testContext(t)); err != nil {
		t.Errorf("Stop after death: %v", err)
	}
}

func TestRedisFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, _ := redisChild(t, RedisOptions{Dir: dir})
	_, err := StartRedis(testContext(t), RedisOptions{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "in use by process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("second start: got %v, want an error that says in use by process %d", err, os.Getpid())
	}
	if !isLocked(t, r.lock.server) {
		t.Error("got a server without the lock, want one with it")
	}
	if err := r.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	awaitUnlocked(t, r.lock.server)
	startRedis(t, RedisOptions{Dir: dir})
}

func TestRedisPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, _ := redisChild(t, RedisOptions{})
	program := firstInPath([]string{"redis-server", "valkey-server"})
	other := &Redis{password: r.password}
	if err := other.serve(testContext(t), program, l.Addr().(*net.TCPAddr).Port); !errors.Is(err, errPortInUse) {
		t.Errorf("serve on a taken port: got %v, want %v", err, errPortInUse)
	}
}
