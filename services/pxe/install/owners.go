package install

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
)

// machineEntity is what network tells of an IP entity.
type machineEntity struct {
	V4, V6 *space
	VLAN   *int32
	Group  struct {
		ID         int64
		Name       string
		DHCPServer *rest.RefID `json:"dhcp_server"`
	}
}

// space is an address, a range or a prefix, and its subnet.
type space struct {
	First   netip.Addr
	Bits    *int // of a prefix
	Mask    *int // of the subnet's prefix
	Gateway *netip.Addr
}

// host is the first address that a machine can have, with the length of its subnet's prefix.
func (s *space) host() (p netip.Prefix, ok bool) {
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

// has tells whether a machine that has these addresses would still be given them.
func (e *machineEntity) has(h *InstallHost) bool {
	for _, of := range []struct {
		*space
		has *InstallAddress
	}{{e.V4, h.IPv4}, {e.V6, h.IPv6}} {
		if of.space == nil || of.has == nil {
			if of.space != nil || of.has != nil {
				return false
			}
			continue
		}
		if now, ok := of.host(); !ok || now.String() != of.has.Address {
			return false
		}
	}
	return true
}

// prepareInstall asks the services that have them about the IP entity and the client, as they are now.
func (s *Installs) prepareInstall(ctx context.Context, _ rest.Verbs, b *installBody) (err error) {
	if b.entity, err = s.machineEntity(ctx, int64(b.Host.Entity)); err != nil || b.Client == nil {
		return err
	}
	b.ClientEmail, err = s.clientEmail(ctx, int64(*b.Client))
	return err
}

// machineEntity is an IP entity, or nil.
func (s *Installs) machineEntity(ctx context.Context, id int64) (entity *machineEntity, err error) {
	return entity, s.askOwner(ctx, "network", "IP entity", fmt.Sprint("/internal/machine-address/", id), &entity)
}

// clientEmail is a client's address, or nil.
func (s *Installs) clientEmail(ctx context.Context, id int64) (*string, error) {
	var email string
	if err := s.askOwner(ctx, "clients", "client", fmt.Sprint("/internal/email/", id), &email); err != nil || email == "" {
		return nil, err
	}
	return &email, nil
}

// askTimeout is how long another service may take to answer.
const askTimeout = 3 * time.Second

func (s *Installs) askOwner(ctx context.Context, service, noun, path string, into any) error {
	ctx, cancel := s.Peers.Limit(ctx, askTimeout)
	defer cancel()
	err := s.Peers.Ask(ctx, service, path, into)
	if errors.Is(err, mesh.ErrAway) {
		return problem.New(problem.Unavailable, "Whether the %s exists cannot be found out right now.", noun).Because(err)
	}
	return err
}
