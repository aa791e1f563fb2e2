package install

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/services/pxe/preflight"
)

// machineEntity is an IP entity as the network service describes it.
type machineEntity struct {
	V4, V6 *subnet
	VLAN   *int32
	Owner  *struct{ ID int64 } // the client that it is assigned to, or 0; nil: a network service of an earlier version
	Group  struct {
		ID         int64
		Name       string
		DHCPServer *rest.RefID `json:"dhcp_server"`
	}
}

// subnet is an address, a range or a prefix, with its subnet's mask and gateway.
type subnet struct {
	First   netip.Addr
	Bits    *int // the length of a prefix; nil: an address or a range
	Mask    *int // the length of the subnet's prefix
	Gateway *netip.Addr
}

// firstHost returns the first address that a machine can have, with the length of its subnet's prefix. ok is false for
// an IPv4 entity without a mask.
func (s *subnet) firstHost() (p netip.Prefix, ok bool) {
	address, all := s.First, s.First.BitLen()
	length := 64
	if s.Mask != nil {
		length = *s.Mask
	} else if s.First.Is4() {
		return p, false
	}
	if s.Bits != nil && *s.Bits < all-1 {
		address = address.Next()
	}
	if s.Gateway != nil && address == *s.Gateway && s.Bits != nil && *s.Bits < all {
		address = address.Next()
	}
	return netip.PrefixFrom(address, length), true
}

// matches reports whether an install with this entity would still get the addresses of h.
func (e *machineEntity) matches(h *InstallHost) bool {
	for _, family := range []struct {
		*subnet
		has *InstallAddress
	}{{e.V4, h.IPv4}, {e.V6, h.IPv6}} {
		if family.subnet == nil || family.has == nil {
			if family.subnet != nil || family.has != nil {
				return false
			}
			continue
		}
		if prefix, ok := family.firstHost(); !ok || prefix.String() != family.has.Address {
			return false
		}
	}
	return true
}

// isFor reports whether the entity is assigned to a client. A network service of an earlier version does not say.
func (e *machineEntity) isFor(client int64) bool { return e.Owner == nil || e.Owner.ID == client }

// fetchEntity returns an IP entity, or nil if it does not exist.
func (s *Installs) fetchEntity(ctx context.Context, id int64) (entity *machineEntity, err error) {
	return entity, s.ask(ctx, "network", "IP entity", fmt.Sprint("/internal/machine-address/", id), &entity)
}

// holdEntity holds an IP entity until the commit. If the install has a client, it asks again whether the entity is assigned to it:
// the client may have lost the entity since the preflight, and cannot lose it while it is held.
func (s *Installs) holdEntity(ctx context.Context, tx *pg.Tx, id, client int64) error {
	const pointer = "/host/entity"
	if err := s.Entities.Hold(ctx, tx, id, pointer); err != nil || client == 0 {
		return err
	}
	entity, err := s.fetchEntity(ctx, id)
	switch {
	case err != nil:
		return err
	case entity == nil:
		return problem.Member(pointer, "not_found", "does not exist")
	case !entity.isFor(client):
		return problem.Fields{preflight.ForeignEntity(id)}.Err()
	default:
		return nil
	}
}

// fetchClientEmail returns a client's email address, or nil if the client does not exist.
func (s *Installs) fetchClientEmail(ctx context.Context, id int64) (*string, error) {
	var email string
	if err := s.ask(ctx, "clients", "client", fmt.Sprint("/internal/email/", id), &email); err != nil || email == "" {
		return nil, err
	}
	return &email, nil
}

// askTimeout bounds a call to another service.
const askTimeout = 3 * time.Second

// ask asks another service. If the service cannot be reached, the error is a 503 that names noun.
func (s *Installs) ask(ctx context.Context, service, noun, path string, into any) error {
	ctx, cancel := s.Peers.Limit(ctx, askTimeout)
	defer cancel()
	err := s.Peers.Ask(ctx, service, path, into)
	if errors.Is(err, mesh.ErrUnavailable) {
		return problem.New(problem.Unavailable, "The %s cannot be looked up right now. Try again later.", noun).Because(err)
	}
	return err
}
