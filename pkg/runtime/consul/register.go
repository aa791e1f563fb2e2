package consul

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	sdconsul "github.com/go-kit/kit/sd/consul"
	"github.com/go-kit/log"
	"github.com/hashicorp/consul/api"
)

const (
	// checkInterval is how often Consul checks whether a process is ready, and checkTimeout how long a check may take.
	checkInterval = 2 * time.Second
	checkTimeout  = 3 * time.Second
	// deregisterAfter is when Consul removes a process that is not ready.
	deregisterAfter = 10 * time.Minute
	// deregisterTimeout bounds the request that removes a process, and propagationDelay is how long others take to notice.
	deregisterTimeout = 2 * time.Second
	propagationDelay  = time.Second
)

// Registration is the entry of a process in Consul.
type Registration struct {
	agent      *Agent
	definition *api.AgentServiceRegistration
}

// Registration returns the entry of a process with this name, which listens for callers and for operators at these
// addresses. Its id is the address at which others reach the process: it is unique in a Consul, and the same at each start.
func (a *Agent) Registration(name string, listen, operations net.Addr) *Registration {
	checked := a.advertise
	at := operations.(*net.TCPAddr)
	if !at.IP.IsUnspecified() {
		checked = at.IP.String()
	}
	port := listen.(*net.TCPAddr).Port
	return &Registration{a, &api.AgentServiceRegistration{
		ID: fmt.Sprintf("%s-%s-%d", name, a.advertise, port), Name: name, Address: a.advertise, Port: port,
		Check: &api.AgentServiceCheck{
			Name: "ready", HTTP: "http://" + net.JoinHostPort(checked, strconv.Itoa(at.Port)) + "/readyz", Status: api.HealthPassing,
			Interval: checkInterval.String(), Timeout: checkTimeout.String(), DeregisterCriticalServiceAfter: deregisterAfter.String(),
		},
	}}
}

// Keep registers the process until ctx ends, and registers it again if Consul has lost it.
func (r *Registration) Keep(ctx context.Context) {
	registrar := sdconsul.NewRegistrar(sdClient{r.agent, ctx}, r.definition, log.NewNopLogger())
	for ctx.Err() == nil {
		registrar.Register()
		r.awaitLoss(ctx)
		waitToRetry(ctx)
	}
}

// awaitLoss returns when Consul does not know the registration, or cannot be asked.
func (r *Registration) awaitLoss(ctx context.Context) {
	hash := ""
	for {
		_, err := r.agent.ask(ctx, 0, func(q *api.QueryOptions) (uint64, error) {
			q.WaitHash = hash
			_, meta, err := r.agent.client.Agent().Service(r.definition.ID, q)
			if err == nil {
				hash = meta.LastContentHash
			}
			return 0, err
		})
		if err != nil {
			return
		}
	}
}

// End removes the process from Consul, and waits until others had time to notice.
func (r *Registration) End() {
	ctx, cancel := context.WithTimeout(context.Background(), deregisterTimeout)
	defer cancel()
	sdconsul.NewRegistrar(sdClient{r.agent, ctx}, r.definition, log.NewNopLogger()).Deregister()
	time.Sleep(propagationDelay)
}
