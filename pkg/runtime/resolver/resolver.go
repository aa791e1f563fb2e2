// Package resolver follows the addresses behind host names, such as those of a headless service of Kubernetes.
package resolver

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Interval is how often names are resolved. A process that ends has to accept connections for longer.
const Interval = 15 * time.Second

const (
	// minInterval is the shortest time between two lookups after failed connections.
	minInterval = time.Second
	// lookupTimeout bounds the lookup of one name.
	lookupTimeout = 5 * time.Second
	// maxAddresses bounds the addresses of one name.
	maxAddresses = 256
)

// Lookup returns the IP addresses of a host name, as net.Resolver.LookupNetIP does for the network "ip".
type Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

// Watcher follows the instances of one service. Create it with New.
type Watcher struct {
	service   string
	endpoints []endpoint
	lookup    Lookup
	log       *slog.Logger
	refresh   chan struct{}
}

// endpoint is a configured address, and its last known instances if its host is a name.
type endpoint struct {
	host, port string
	known      []string
	isFailing  bool
}

// New returns the Watcher of a service. It returns nil if no host in addresses (host:port) is a name: there is nothing to follow.
func New(service string, addresses []string, lookup Lookup, log *slog.Logger) *Watcher {
	w := &Watcher{service: service, lookup: lookup, log: log, refresh: make(chan struct{}, 1)}
	hasName := false
	for _, address := range addresses {
		host, port, err := net.SplitHostPort(address)
		if _, notIP := netip.ParseAddr(host); err != nil || notIP == nil {
			w.endpoints = append(w.endpoints, endpoint{known: []string{address}})
			continue
		}
		w.endpoints = append(w.endpoints, endpoint{host: host, port: port})
		hasName = true
	}
	if !hasName {
		return nil
	}
	return w
}

// Refresh resolves the names soon, because an instance cannot be reached. It does nothing for a nil Watcher.
func (w *Watcher) Refresh() {
	if w == nil {
		return
	}
	select {
	case w.refresh <- struct{}{}:
	default: // a lookup is due anyway
	}
}

// Run calls update with the addresses of all instances, at first and after each change, until ctx ends. A name that cannot be
// resolved, or has no address any more, keeps its last ones: the instances behind it may still answer.
func (w *Watcher) Run(ctx context.Context, update func(addresses []string)) {
	var current []string
	for first := true; ; first = false {
		found := w.resolve(ctx)
		if ctx.Err() != nil {
			return
		}
		if first || !slices.Equal(found, current) {
			current = found
			update(slices.Clone(found))
		}
		if !w.wait(ctx) {
			return
		}
	}
}

// wait returns when the next lookup is due. It returns false if ctx ends before that.
func (w *Watcher) wait(ctx context.Context) bool {
	earliest, next := time.NewTimer(minInterval), time.NewTimer(Interval)
	defer earliest.Stop()
	defer next.Stop()
	select {
	case <-earliest.C:
	case <-ctx.Done():
		return false
	}
	select {
	case <-w.refresh:
	case <-next.C:
	case <-ctx.Done():
		return false
	}
	return true
}

// resolve looks up all names at the same time, and returns the sorted addresses of all instances.
func (w *Watcher) resolve(ctx context.Context) (all []string) {
	var looking sync.WaitGroup
	for n := range w.endpoints {
		if e := &w.endpoints[n]; e.host != "" {
			looking.Go(func() { w.resolveName(ctx, e) })
		}
	}
	looking.Wait()
	for _, e := range w.endpoints {
		all = append(all, e.known...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// resolveName replaces the instances of an endpoint by the present ones. It logs when lookups begin to fail, and when they work.
func (w *Watcher) resolveName(ctx context.Context, e *endpoint) {
	lookup, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := w.lookup(lookup, "ip", e.host)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		if !e.isFailing {
			w.log.Warn("lookup of a service fails", "service", w.service, "host", e.host, "error", err)
		}
		e.isFailing = true
		return
	case e.isFailing:
		w.log.Warn("lookup of a service succeeds again", "service", w.service, "host", e.host)
		e.isFailing = false
	}
	if len(found) == 0 {
		return
	}
	addresses := make([]string, 0, len(found))
	for _, ip := range found[:min(len(found), maxAddresses)] {
		addresses = append(addresses, net.JoinHostPort(ip.Unmap().String(), e.port))
	}
	e.known = addresses
}
