package consul

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/secret"
)

// Package deploy/containers tests against a real Consul. These tests cover its rare answers.

const token = "b1gs3cr3t"

func open(t *testing.T, handler http.HandlerFunc) (*Agent, *strings.Builder) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	var log strings.Builder
	a, err := Open(Config{Consul: server.URL, Token: secret.New(token)}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return a, &log
}

func TestOpen(t *testing.T) {
	t.Parallel()
	for _, invalid := range []string{"consul", "consul:8500", "ftp://consul:8500", "http://"} {
		if _, err := Open(Config{Consul: invalid}, slog.Default()); err == nil || !strings.Contains(err.Error(), "CONSUL_URL") {
			t.Errorf("%s: got %v, want an error that names CONSUL_URL", invalid, err)
		}
	}
	if _, err := Open(
		Config{Consul: "http://consul.invalid:8500"},
		slog.Default(),
	); err == nil ||
		!strings.Contains(err.Error(), "IRONPLANE_ADVERTISE") {
		t.Errorf("got %v, want an error that names IRONPLANE_ADVERTISE", err)
	}
	a, _ := open(t, nil)
	if a.advertise != "127.0.0.1" {
		t.Errorf("got the address %s, want 127.0.0.1", a.advertise)
	}
}

// IPv6 addresses get brackets. An index that decreases does not lose a change.
func TestWatch(t *testing.T) {
	t.Parallel()
	const instance = `[{"Node": {"Address": "192.0.2.1"}, "Service": {"Address": %q, "Port": 8443}}]`
	var asked atomic.Int64
	a, _ := open(t, func(w http.ResponseWriter, r *http.Request) {
		answer, index := "2001:db8::1", 100
		if asked.Add(1) > 1 {
			answer, index = "2001:db8::2", 7 // the index started over
		}
		if r.URL.Query().Get("index") == "7" {
			<-r.Context().Done()
		}
		w.Header().Set("X-Consul-Index", fmt.Sprint(index))
		fmt.Fprintf(w, instance, answer)
	})
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	var found []string
	a.Watch(ctx, "network", func(addresses []string) {
		if found = append(found, addresses...); len(found) == 2 {
			stop()
		}
	})
	if !slices.Equal(found, []string{"[2001:db8::1]:8443", "[2001:db8::2]:8443"}) {
		t.Errorf("got the addresses %v, want [2001:db8::1]:8443 and [2001:db8::2]:8443", found)
	}
}

// If Consul refuses requests, Check fails. The log has one line about it, without the token.
func TestRefused(t *testing.T) {
	t.Parallel()
	refused := make(chan struct{}, 100)
	a, log := open(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Consul-Token") != token {
			t.Error("got a request without the token, want it with the token")
		}
		http.Error(w, "Permission denied", http.StatusForbidden)
		refused <- struct{}{}
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		<-refused
		<-refused
		stop()
	}()
	a.Watch(ctx, "network", func([]string) { t.Error("got instances, want none") })
	if err := a.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "the instances of network") {
		t.Errorf("got %v, want an error that names the instances of network", err)
	}
	if strings.Count(log.String(), "\n") != 1 || strings.Contains(log.String(), token) {
		t.Errorf("got the log %s, want one line without the token", log.String())
	}
}

// Instances on one machine with the same port, at different addresses, do not replace each other. One that starts again replaces itself.
func TestRegistrationIDs(t *testing.T) {
	t.Parallel()
	id := func(host string, port int) string {
		a, err := Open(Config{Consul: "http://127.0.0.1:8500", Advertise: host}, slog.Default())
		if err != nil {
			t.Fatal(err)
		}
		return a.Registration("network", &net.TCPAddr{Port: port}, &net.TCPAddr{Port: 9090}).definition.ID
	}
	ids := map[string]bool{}
	for _, host := range []string{"127.77.0.1", "127.77.0.2", "2001:db8::1", "host.example"} {
		for _, port := range []int{8443, 8444} {
			ids[id(host, port)] = true
		}
	}
	if len(ids) != 8 {
		t.Errorf("got the ids %v, want 8", slices.Collect(maps.Keys(ids)))
	}
	if got, want := id("127.77.0.1", 8443), "network-127.77.0.1-8443"; got != want || got != id("127.77.0.1", 8443) {
		t.Errorf("got the id %s, want %s at each start", got, want)
	}
}
