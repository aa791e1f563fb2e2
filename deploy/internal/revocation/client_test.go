package revocation

import (
	"fmt"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// clientEndings are the ways in which the key of a client, or its access to a sub client, is revoked. path returns
// what the key requests.
var clientEndings = []struct {
	name   string
	bySub  bool // the sub client's key is used, and not its parent's
	path   func(parent, sub int64) string
	revoke func(s *stand, parent, sub int64)
}{
	{"client deleted", false, func(parent, _ int64) string { return fmt.Sprintf("/client/%d", parent) }, func(s *stand, parent, _ int64) {
		s.admin.Do("DELETE", fmt.Sprintf("/client/%d", parent), nil).Want(200)
	}},
	{"sub client deleted", true, func(_, sub int64) string { return fmt.Sprintf("/client/%d", sub) }, func(s *stand, _, sub int64) {
		s.admin.Do("DELETE", fmt.Sprintf("/client/%d", sub), nil).Want(200)
	}},
	{"sub client disabled", true, func(int64, int64) string { return "/entity" }, func(s *stand, _, sub int64) {
		s.admin.Do("PATCH", fmt.Sprintf("/client/%d", sub), `{"disabled": true}`).Want(200)
	}},
	{"link deleted", false, func(_, sub int64) string { return fmt.Sprintf("/client/%d", sub) }, func(s *stand, parent, _ int64) {
		links := testkit.Decode[[]struct{ ID int64 }](s.admin.Do("GET", fmt.Sprintf("/client/%d/sub", parent), nil).Want(200))
		s.admin.Do("DELETE", fmt.Sprintf("/client/%d/sub/%d", parent, links[0].ID), nil).Want(200)
	}},
}

// TestRevocationOfClients uses the keys of clients while these, their sub clients, or the link between the two are deleted.
func TestRevocationOfClients(t *testing.T) {
	t.Parallel()
	for _, fault := range faults {
		if !*full && fault.name != "healthy" {
			continue
		}
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, split, fault.gateways, nil)
			for n, ending := range clientEndings {
				parent := s.admin.Do("POST", "/client", newClient(fmt.Sprintf("parent-%d", n))).Want(200).ID()
				key := s.clientKey(parent)
				sub := s.admin.WithKey(key).Do("POST", "/client", newClient(fmt.Sprintf("sub-%d", n))).Want(200).ID()
				if ending.bySub {
					key = s.clientKey(sub)
				}
				l := newLoad(t, s.gateways, ending.path(parent, sub), key)
				l.awaitMore(t, &l.good, connections)
				stop := func() {}
				if fault.fillsEntries {
					stop = s.flushRepeatedly()
				}
				fault.begin(s)
				l.awaitMore(t, &l.good, connections)
				ending.revoke(s, parent, sub)
				ended := time.Now()
				l.awaitMore(t, &l.refused, connections)
				fault.end(s)
				s.identity.question.Store(0)
				s.identity.answer.Store(0)
				s.servicesToRedis.heal()
				stop()
				l.stop()
				last := l.began.Add(time.Duration(l.lastSent.Load())).Sub(ended)
				t.Logf(
					"%s: the last accepted request was sent %v after the revocation; %d accepted, %d refused",
					ending.name,
					last.Round(time.Millisecond),
					l.good.Load(),
					l.refused.Load(),
				)
				if last > maxDelay || l.failed.Load() > 0 {
					t.Errorf(
						"%s: got the last accepted request %v after the revocation, want %v at most; got %d failures, the last with %v, want none",
						ending.name,
						last,
						maxDelay,
						l.failed.Load(),
						l.failure.Load(),
					)
				}
			}
		})
	}
}

func newClient(name string) map[string]any {
	return map[string]any{"email": name + "@example.com", "first": "Ben", "last": name}
}

func (s *stand) clientKey(id int64) string {
	s.t.Helper()
	owner := map[string]any{"url": fmt.Sprintf("/client/%d", id)}
	return testkit.Decode[keys.APIKey](s.admin.Do("POST", "/auth/key", map[string]any{"name": "test", "owner": owner}).Want(200)).Key
}
