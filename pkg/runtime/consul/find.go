package consul

import (
	"context"
	"net"
	"strconv"
	"strings"

	"github.com/go-kit/kit/sd"
	sdconsul "github.com/go-kit/kit/sd/consul"
	"github.com/go-kit/log"
	"github.com/hashicorp/consul/api"
)

// Watch calls update with the addresses of a service's ready instances, at first and after each change, until ctx ends. If
// Consul knows no instance any more, the last known ones remain: Consul may have lost its data.
func (a *Agent) Watch(ctx context.Context, service string, update func(addresses []string)) {
	instancer := sdconsul.NewInstancer(sdClient{a, ctx}, log.NewNopLogger(), service, nil, true)
	events := make(chan sd.Event, 1)
	instancer.Register(events)
	for first := true; ctx.Err() == nil; {
		select {
		case e := <-events:
			if e.Err == nil && (first || len(e.Instances) > 0) {
				update(e.Instances)
				first = false
			}
		case <-ctx.Done():
		}
	}
	instancer.Stop()
	deregistered := make(chan struct{})
	go func() {
		defer close(deregistered)
		instancer.Deregister(events)
	}()
	for {
		select {
		case <-events: // the instancer may be about to send one
		case <-deregistered:
			return
		}
	}
}

// Instances returns the addresses of a service's ready instances.
func (a *Agent) Instances(ctx context.Context, service string) (addresses []string, err error) {
	_, err = a.ask(ctx, 0, func(q *api.QueryOptions) (uint64, error) {
		entries, _, err := a.client.Health().Service(service, "", true, q)
		for _, e := range entries {
			host := e.Service.Address
			if host == "" {
				host = e.Node.Address
			}
			addresses = append(addresses, net.JoinHostPort(host, strconv.Itoa(e.Service.Port)))
		}
		return 0, err
	})
	return addresses, err
}

// sdClient implements go-kit's client of Consul. Its requests retry until Consul answers or ctx ends.
type sdClient struct {
	*Agent
	ctx context.Context
}

func (c sdClient) Service(
	service, tag string,
	ready bool,
	q *api.QueryOptions,
) (entries []*api.ServiceEntry, meta *api.QueryMeta, err error) {
	ask := func(q *api.QueryOptions) (uint64, error) {
		entries, meta, err = c.client.Health().Service(service, tag, ready, q)
		if err != nil {
			return 0, err
		}
		return meta.LastIndex, nil
	}
	for index := q.WaitIndex; c.ctx.Err() == nil; index = 0 {
		_, err := c.ask(c.ctx, index, ask)
		if c.noteResult(c.ctx, "the instances of "+service, err) == nil {
			return bracketIPv6(entries), meta, nil
		}
		waitToRetry(c.ctx)
	}
	return nil, nil, c.ctx.Err()
}

// bracketIPv6 puts IPv6 addresses into brackets, because go-kit appends the port to the address.
func bracketIPv6(entries []*api.ServiceEntry) []*api.ServiceEntry {
	for _, e := range entries {
		for _, address := range []*string{&e.Service.Address, &e.Node.Address} {
			if strings.Contains(*address, ":") {
				*address = "[" + *address + "]"
			}
		}
	}
	return entries
}

const registration = "a registration"

func (c sdClient) Register(r *api.AgentServiceRegistration) error {
	return c.noteResult(
		c.ctx,
		registration,
		c.client.Agent().ServiceRegisterOpts(r, api.ServiceRegisterOpts{ReplaceExistingChecks: true}.WithContext(c.ctx)),
	)
}

func (c sdClient) Deregister(r *api.AgentServiceRegistration) error {
	return c.noteResult(c.ctx, registration, c.client.Agent().ServiceDeregisterOpts(r.ID, (&api.QueryOptions{}).WithContext(c.ctx)))
}
