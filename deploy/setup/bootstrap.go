package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/postgres/provision"
	"github.com/ironplane/ironplane/pkg/secret"
)

const bootstrapTime = 2 * time.Minute

// bootstrap makes the services' roles and schemas, and the processes' tokens.
func bootstrap(ctx context.Context, c config) error {
	ctx, cancel := context.WithTimeout(ctx, bootstrapTime)
	defer cancel()
	if _, err := c.bootstrapPostgres(ctx); err != nil {
		return err
	}
	if c.Consul == "" {
		return nil
	}
	return c.admitToConsul(ctx)
}

// bootstrapPostgres makes the services' roles and schemas, and answers the URL of each one's.
func (c config) bootstrapPostgres(ctx context.Context) (map[string]secret.String, error) {
	admin, passwords, err := c.postgres()
	if err != nil {
		return nil, err
	}
	urls := map[string]secret.String{}
	for name, password := range passwords {
		if urls[name], err = provision.ServiceURL(admin, rolePrefix, name, password); err != nil {
			return nil, err
		}
	}
	if err := provision.Database(ctx, admin, rolePrefix, passwords); err != nil {
		return nil, err
	}
	return urls, product.MarkLost(ctx, secret.New(admin))
}

// postgres is the URL of the database as its administrator, and the passwords of the services' roles.
func (c config) postgres() (admin string, passwords map[string]secret.String, err error) {
	password, err := c.kept("postgres-password")
	if err != nil {
		return "", nil, err
	}
	passwords = map[string]secret.String{}
	for _, name := range product.Names() {
		if passwords[name], err = c.kept(name + "-password"); err != nil {
			return "", nil, err
		}
	}
	return c.administrator(password), passwords, nil
}

// printSQL prints what makes the database, which only a superuser may.
func (c config) printSQL(screen io.Writer) error {
	password, err := c.kept("postgres-password")
	if err == nil {
		_, err = io.WriteString(screen, provision.Statements(database, password))
	}
	return err
}

// takeUp takes up what was restored.
func takeUp(ctx context.Context, c config, screen io.Writer) error {
	urls, err := c.bootstrapPostgres(ctx)
	if err != nil {
		return err
	}
	return product.TakeUp(ctx, urls, c.Restored, screen)
}

// admitToConsul lets each process be itself, and know where others are.
func (c config) admitToConsul(ctx context.Context) error {
	client, err := c.manageConsul()
	if err != nil {
		return err
	}
	for _, name := range processes() {
		token, err := c.kept(name + "-consul-token")
		if err != nil {
			return err
		}
		if err := admit(ctx, client, name, token); err != nil {
			return fmt.Errorf("make %s's token for Consul: %w", name, err)
		}
	}
	return nil
}

func (c config) manageConsul() (*api.Client, error) {
	u, err := url.Parse(c.Consul)
	if err != nil {
		return nil, fmt.Errorf("CONSUL_URL: %w", err)
	}
	management, err := c.kept("consul-management-token")
	if err != nil {
		return nil, err
	}
	client, err := api.NewClient(&api.Config{Address: u.Host, Scheme: u.Scheme, Token: management.Reveal()})
	if err != nil {
		return nil, fmt.Errorf("CONSUL_URL: %w", err)
	}
	return client, nil
}

const rules = `service %q { policy = "write" }
service_prefix "" { policy = "read" }
node_prefix "" { policy = "read" }
`

func admit(ctx context.Context, client *api.Client, name string, token secret.String) error {
	policy := &api.ACLPolicy{Name: "ironplane-" + name, Rules: fmt.Sprintf(rules, name)}
	write, read := (&api.WriteOptions{}).WithContext(ctx), (&api.QueryOptions{}).WithContext(ctx)
	there, _, err := client.ACL().PolicyReadByName(policy.Name, read)
	if err != nil {
		return err
	}
	if there == nil {
		_, _, err = client.ACL().PolicyCreate(policy, write)
	} else {
		policy.ID = there.ID
		_, _, err = client.ACL().PolicyUpdate(policy, write)
	}
	if err != nil {
		return err
	}
	tokens, _, err := client.ACL().TokenListFiltered(api.ACLTokenFilterOptions{Policy: policy.ID}, read)
	if err != nil {
		return err
	}
	for _, t := range tokens {
		if secret.New(t.SecretID).Equal(token) {
			return nil
		}
	}
	_, _, err = client.ACL().TokenCreate(&api.ACLToken{
		SecretID: token.Reveal(), Description: policy.Name, Policies: []*api.ACLTokenPolicyLink{{Name: policy.Name}},
	}, write)
	return err
}
