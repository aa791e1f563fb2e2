package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/agnivade/levenshtein"

	"github.com/ironplane/ironplane/pkg/runtime/consul"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/mtls"
)

// examineTimeout bounds each of a program's checks.
const examineTimeout = 10 * time.Second

// examine prints whether each requirement for the program's start is met. It fails if one is not.
func (p Program) examine(ctx context.Context, environment []string, out io.Writer) error {
	invalid := configure(p.Config, environment, p.Commands[0].Name)
	for _, err := range invalid {
		p.printOutcome(out, "fails", err.Error())
	}
	misspelled := 0
	for _, name := range unknownVariables(p.Config, environment) {
		outcome, text := "warning", name+" is set, but this program does not read it"
		if known := nearVariable(p.Config, name); known != "" {
			misspelled++
			outcome, text = "fails", text+": is it "+known+"?"
		}
		p.printOutcome(out, outcome, text)
	}
	checks := p.Checks()
	outcomes := make([]error, len(checks))
	var asking sync.WaitGroup
	for i, check := range checks {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, examineTimeout)
			defer cancel()
			outcomes[i] = check.Ask(ctx)
		})
	}
	asking.Wait()
	failed := len(invalid) + misspelled
	for i, check := range checks {
		_, notTried := errors.AsType[health.NotTried](outcomes[i])
		switch err := outcomes[i]; {
		case err == nil:
			p.printOutcome(out, "ok", check.Name)
		case notTried:
			p.printOutcome(out, "skipped", check.Name+": "+err.Error())
		case check.Optional:
			p.printOutcome(out, "warning", check.Name+": "+err.Error())
		default:
			failed++
			p.printOutcome(out, "fails", check.Name+": "+err.Error())
		}
	}
	if failed > 0 {
		return fmt.Errorf("%s would not start: %d of %d checks failed", p.Name, failed, len(invalid)+misspelled+len(checks))
	}
	return nil
}

// printOutcome prints a line of the check's output, with further lines of text indented.
func (Program) printOutcome(out io.Writer, outcome, text string) {
	fmt.Fprintf(out, "%-8s %s\n", outcome, strings.ReplaceAll(text, "\n", "\n         "))
}

// CheckListen returns a check that the address in a variable can be listened on. An empty address passes.
func CheckListen(variable, address string) health.Check {
	return health.Check{Name: variable + ": " + address + " is free", Ask: func(context.Context) error {
		if address == "" {
			return nil
		}
		l, err := net.Listen("tcp", address)
		if errors.Is(err, syscall.EADDRINUSE) {
			return errors.New("the address is in use by another program, or by this one if it is running")
		}
		if err != nil {
			return err
		}
		return l.Close()
	}}
}

// Checks returns checks of the address for operators and of the endpoint for traces.
func (c *OperationsConfig) Checks() (checks []health.Check) {
	if c.Operations != "" {
		checks = append(checks, CheckListen("IRONPLANE_OPERATIONS_LISTEN", c.Operations))
	}
	if c.Traces != "" || !c.TraceHeaders.IsZero() {
		valid := func(context.Context) error { return c.checkTraces() }
		checks = append(checks, health.Check{Name: "OTEL_EXPORTER_OTLP_ENDPOINT and _HEADERS: valid", Ask: valid})
	}
	if c.Traces != "" {
		checks = append(
			checks,
			health.Check{Name: "OTEL_EXPORTER_OTLP_ENDPOINT: reachable", Optional: true, Ask: func(ctx context.Context) error {
				to, err := parseEndpoint(c.Traces)
				if err != nil {
					return err
				}
				return dial(ctx, to)
			}},
		)
	}
	return checks
}

// dial checks that the host of a URL accepts connections.
func dial(ctx context.Context, to *url.URL) error {
	host := to.Host
	if to.Port() == "" {
		host = net.JoinHostPort(to.Hostname(), map[string]string{"http": "80", "https": "443"}[to.Scheme])
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
	if err != nil {
		return err
	}
	return conn.Close()
}

// unknownVariables returns the IRONPLANE_ variables in the environment that the configuration does not read, and those that nearly
// begin like this.
func unknownVariables(config any, environment []string) (names []string) {
	known := map[string]bool{}
	for _, m := range membersOf(config) {
		known[m.name] = true
		known[m.name+"_FILE"] = m.isSecret()
	}
	for _, entry := range environment {
		name, value, _ := strings.Cut(entry, "=")
		prefix, _, _ := strings.Cut(name, "_")
		if levenshtein.ComputeDistance(prefix, "IRONPLANE") < 2 && value != "" && !known[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// maxMisspelling is how many letters may be wrong, missing or too many in a variable that was meant to be another one.
const maxMisspelling = 2

// nearVariable returns the variable of the configuration that a name nearly spells; empty: there is none.
func nearVariable(config any, name string) (nearest string) {
	least := maxMisspelling + 1
	for _, m := range membersOf(config) {
		known := []string{m.name}
		if m.isSecret() {
			known = append(known, m.name+"_FILE")
		}
		for _, known := range known {
			if distance := levenshtein.ComputeDistance(name, known); distance < least {
				nearest, least = known, distance
			}
		}
	}
	return nearest
}

// Checks returns checks of the process's identity and of the services that it asks. The services are optional, because they
// need not run yet.
func (c *MeshConfig) Checks(name string) (checks []health.Check) {
	agent := sync.OnceValues(func() (*consul.Agent, error) { return consul.Open(c.Config, slog.New(slog.DiscardHandler)) })
	identity := sync.OnceValues(func() (*mtls.Identity, error) {
		if c.Files != (mtls.Files{}) || c.Consul == "" {
			return mtls.Load(name, c.Files)
		}
		a, err := agent()
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), examineTimeout)
		defer cancel()
		return a.Certify(ctx, name)
	})
	certificate := func(name string, optional bool, holds func(*mtls.Identity) error) health.Check {
		return health.Check{Name: name, Optional: optional, Ask: func(context.Context) error {
			id, err := identity()
			if err != nil {
				return err
			}
			return holds(id)
		}}
	}
	if c.Consul == "" && c.Files == (mtls.Files{}) {
		return []health.Check{{Name: "certificate", Ask: func(context.Context) error { return errNoCertificate }}}
	}
	if c.Consul != "" {
		checks = append(
			checks,
			health.Check{Name: "CONSUL_URL: Consul answers, and lets this process find services", Ask: func(ctx context.Context) error {
				a, err := agent()
				if err == nil {
					_, err = a.Instances(ctx, name)
				}
				return err
			}},
		)
	}
	checks = append(
		checks,
		certificate("certificate: valid, and for this process", false, checkExpiry),
		certificate("certificate: does not expire soon", true, checkRenewal),
	)
	for _, service := range slices.Sorted(maps.Keys(c.Services)) {
		if service == name {
			continue
		}
		addresses := c.Services[service]
		if len(addresses) == 0 {
			addresses = []string{""}
		}
		for _, address := range addresses {
			checks = append(checks, health.Check{
				Name: "IRONPLANE_SERVICES: " + strings.TrimSuffix(service+" answers at "+address, " at "), Optional: true,
				Ask: func(ctx context.Context) error {
					id, err := identity()
					if err != nil {
						return errors.New("the service cannot be asked without a certificate")
					}
					if address == "" {
						return probeInstances(ctx, agent, id, service)
					}
					return id.Probe(ctx, service, address)
				},
			})
		}
	}
	return checks
}

// probeInstances probes the instances of a service that Consul knows.
func probeInstances(ctx context.Context, agent func() (*consul.Agent, error), id *mtls.Identity, service string) error {
	a, err := agent()
	if err != nil {
		return err
	}
	addresses, err := a.Instances(ctx, service)
	if err != nil {
		return err
	}
	if len(addresses) == 0 {
		return errors.New("no ready instance is known to Consul")
	}
	for _, address := range addresses {
		err = errors.Join(err, id.Probe(ctx, service, address))
	}
	return err
}
