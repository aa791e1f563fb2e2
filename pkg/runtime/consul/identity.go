package consul

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ironplane/ironplane/pkg/runtime/mtls"
	"github.com/ironplane/ironplane/pkg/secret"
)

const certificate = "a certificate"

// startTimeout is how long a process waits for its first certificate.
const startTimeout = time.Minute

// credentials are a certificate of Consul's authority, and the authority's roots. Consul sends them separately.
type credentials struct {
	name   string
	mu     sync.Mutex
	issued mtls.Issued
	roots  []byte
}

// Identity returns the identity of the process with this name, certified by Consul. It retries for startTimeout. Renew keeps
// the identity valid.
func (a *Agent) Identity(ctx context.Context, name string) (*mtls.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		id, err := a.Certify(ctx, name)
		if a.noteResult(ctx, certificate, err) == nil {
			return id, nil
		}
		if waitToRetry(ctx); ctx.Err() != nil {
			return nil, err
		}
	}
}

// Certify is Identity with a single attempt.
func (a *Agent) Certify(ctx context.Context, name string) (*mtls.Identity, error) {
	p := &credentials{name: name}
	for _, part := range []func(*api.QueryOptions) (uint64, error){a.leaf(p), a.roots(p)} {
		if _, err := a.ask(ctx, 0, part); err != nil {
			return nil, fmt.Errorf("get a certificate from Consul: %w", err)
		}
	}
	return mtls.NewIdentity(name, p.issued, p.roots)
}

// Renew updates the identity whenever Consul issues a new certificate or changes its roots, until ctx ends.
func (a *Agent) Renew(ctx context.Context, id *mtls.Identity, name string) {
	p := &credentials{name: name}
	then := func(ask func(*api.QueryOptions) (uint64, error)) func(*api.QueryOptions) (uint64, error) {
		return func(q *api.QueryOptions) (uint64, error) {
			index, err := ask(q)
			if err != nil {
				return 0, err
			}
			return index, p.renew(id)
		}
	}
	var following sync.WaitGroup
	following.Go(func() { a.follow(ctx, certificate, then(a.leaf(p))) })
	following.Go(func() { a.follow(ctx, "its root certificates", then(a.roots(p))) })
	following.Wait()
}

func (p *credentials) renew(id *mtls.Identity) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.issued.Certificate == nil || p.roots == nil {
		return nil
	}
	if err := id.Renew(p.issued, p.roots); err != nil {
		return fmt.Errorf("use the certificate that Consul issued: %w", err)
	}
	return nil
}

func (a *Agent) leaf(p *credentials) func(*api.QueryOptions) (uint64, error) {
	return func(q *api.QueryOptions) (uint64, error) {
		leaf, meta, err := a.client.Agent().ConnectCALeaf(p.name, q)
		if err != nil {
			return 0, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.issued = mtls.Issued{Certificate: []byte(leaf.CertPEM), Key: secret.New(leaf.PrivateKeyPEM)}
		return meta.LastIndex, nil
	}
}

func (a *Agent) roots(p *credentials) func(*api.QueryOptions) (uint64, error) {
	return func(q *api.QueryOptions) (uint64, error) {
		list, meta, err := a.client.Agent().ConnectCARoots(q)
		if err != nil {
			return 0, err
		}
		var roots []byte
		for _, root := range list.Roots {
			roots = slices.Concat(roots, []byte(root.RootCertPEM), []byte("\n"))
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.roots = roots
		return meta.LastIndex, nil
	}
}
