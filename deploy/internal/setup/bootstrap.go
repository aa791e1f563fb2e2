package setup

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

const bootstrapTimeout = 2 * time.Minute

// bootstrap creates the services' roles and schemas in PostgreSQL, and the processes' tokens in Consul, if it is used.
func bootstrap(ctx context.Context, c config) error {
	ctx, cancel := context.WithTimeout(ctx, bootstrapTimeout)
	defer cancel()
	if _, err := c.bootstrapPostgres(ctx); err != nil {
		return err
	}
	if c.Consul == "" {
		return nil
	}
	return c.registerWithConsul(ctx)
}

// bootstrapPostgres creates the services' roles and schemas, and returns the database URL of each service.
func (c config) bootstrapPostgres(ctx context.Context) (map[string]secret.String, error) {
	admin, roles, err := c.postgres()
	if err != nil {
		return nil, err
	}
	urls := map[string]secret.String{}
	for name, role := range roles {
		if urls[name], err = provision.ServiceURL(admin, rolePrefix, name, role.Password); err != nil {
			return nil, err
		}
	}
	if err := provision.Database(ctx, admin, rolePrefix, roles); err != nil {
		return nil, err
	}
	return urls, product.MarkLostSchemas(ctx, secret.New(admin))
}

// postgres returns the administrator's URL of the database, and the services' roles.
func (c config) postgres() (admin string, roles map[string]provision.Role, err error) {
	password, err := c.readSecret("postgres-password")
	if err != nil {
		return "", nil, err
	}
	roles = map[string]provision.Role{}
	for _, name := range product.Names() {
		password, err := c.readSecret(name + "-password")
		if err != nil {
			return "", nil, err
		}
		roles[name] = product.NewRole(name, password, c.Connections)
	}
	return c.adminURL(password), roles, nil
}

// printSQL prints the statements that create the database and its administrator. Only a superuser may run them.
func (c config) printSQL(stdout io.Writer) error {
	password, err := c.readSecret("postgres-password")
	if err == nil {
		_, err = io.WriteString(stdout, provision.Statements(database, password))
	}
	return err
}

// reconcile brings the services in step with restored data, after it has created missing roles and schemas.
func reconcile(ctx context.Context, c config, stdout io.Writer) error {
	urls, err := c.bootstrapPostgres(ctx)
	if err != nil {
		return err
	}
	return product.Reconcile(ctx, urls, c.Restored, stdout)
}

// registerWithConsul creates a token for each process, with which it may register itself and find others.
func (c config) registerWithConsul(ctx context.Context) error {
	client, err := c.newConsulClient()
	if err != nil {
		return err
	}
	for _, name := range processes() {
		token, err := c.readSecret(name + "-consul-token")
		if err != nil {
			return err
		}
		if err := createConsulToken(ctx, client, name, token); err != nil {
			return fmt.Errorf("create %s's token for Consul: %w", name, err)
		}
	}
	return nil
}

// newConsulClient returns a client with the management token.
func (c config) newConsulClient() (*api.Client, error) {
	u, err := url.Parse(c.Consul)
	if err != nil {
		return nil, fmt.Errorf("CONSUL_URL: %w", err)
	}
	management, err := c.readSecret("consul-management-token")
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

// createConsulToken creates or updates a process' policy, and creates its token if Consul does not have it.
func createConsulToken(ctx context.Context, client *api.Client, name string, token secret.String) error {
	policy := &api.ACLPolicy{Name: "ironplane-" + name, Rules: fmt.Sprintf(rules, name)}
	write, read := (&api.WriteOptions{}).WithContext(ctx), (&api.QueryOptions{}).WithContext(ctx)
	existing, _, err := client.ACL().PolicyReadByName(policy.Name, read)
	if err != nil {
		return err
	}
	if existing == nil {
		_, _, err = client.ACL().PolicyCreate(policy, write)
	} else {
		policy.ID = existing.ID
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
