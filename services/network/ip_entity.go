package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/network/field"
)

// IPEntity is an address, a range or a prefix, of IPv4, IPv6 or both. The members address, gateway, subnet_mask,
// v6_address and v6_gateway repeat members of v4 and v6.
type IPEntity struct {
	rest.Versioned
	ID            int64    `json:"id" db:"id"`
	Name          string   `json:"name" db:"name" doc:"the nickname, or full_ip if there is none"`
	Nickname      *string  `json:"nickname,omitempty" db:"nickname" doc:"a name for people, such as rack 12"`
	Address       *string  `json:"address,omitempty" db:"address" doc:"the IPv4 address or prefix, as in v4"`
	FullIP        string   `json:"full_ip" db:"full_ip" doc:"192.0.2.10, 192.0.2.10-192.0.2.20 or 192.0.2.0/29; the IPv6 address if there is no IPv4"`
	Gateway       *string  `json:"gateway,omitempty" db:"gateway" format:"ipv4" doc:"the IPv4 gateway, as in v4"`
	SubnetMask    *string  `json:"subnet_mask,omitempty" db:"subnet_mask" format:"ipv4" doc:"the IPv4 subnet mask, as in v4"`
	V6Address     *string  `json:"v6_address,omitempty" db:"v6_address" doc:"the IPv6 address or prefix, as in v6"`
	V6Gateway     *string  `json:"v6_gateway,omitempty" db:"v6_gateway" format:"ipv6" doc:"the IPv6 gateway, as in v6"`
	BillingID     *string  `json:"billing_id,omitempty" db:"billing_id"`
	VLAN          *int32   `json:"vlan,omitempty" db:"vlan" doc:"the VLAN id"`
	SiblingsCount int64    `json:"siblings_count" db:"siblings_count" recorded:"false" doc:"the number of other entities of the same server"`
	Group         rest.Ref `json:"group" db:"group_" doc:"the IP group that the entity belongs to"`
	Owner         *Owner   `json:"owner,omitempty" db:"owner_" doc:"the client that the entity is assigned to; absent if it is free"`
	V4            *V4      `json:"v4,omitempty" db:"v4_" doc:"the IPv4 part"`
	V6            *V6      `json:"v6,omitempty" db:"v6_" doc:"the IPv6 part"`

	Status      string          `json:"status" db:"status" ext:"true" enum:"available,assigned,reserved,quarantined" doc:"available: can be allocated. assigned: has an owner. reserved: set aside, as note says. quarantined: was released, and is available from available_at on."`
	Note        *string         `json:"note,omitempty" db:"note" ext:"true" doc:"why the entity is reserved, and until when"`
	AvailableAt *rest.Timestamp `json:"available_at,omitempty" db:"available_at" ext:"true" doc:"when the quarantine ends"`

	Fields []field.ShownField `json:"fields,omitzero" doc:"with include=fields"`

	First    netip.Addr `json:"-" db:"first_address"` // for sorting
	Assigned bool       `json:"-" db:"assigned"`
}

// Owner is the client that an entity is assigned to, and the server that uses it.
type Owner struct {
	ID      int64     `json:"id" db:"id"`
	Name    *string   `json:"name,omitempty" db:"name"`
	Missing bool      `json:"missing,omitempty" db:"missing" recorded:"false" ext:"true" doc:"true if the client does not exist: the entity was assigned before owners had to be clients"`
	Server  *OwnerRef `json:"server,omitempty" db:"server_" doc:"the server that uses the entity"`
	Via     *OwnerRef `json:"via,omitempty" db:"via_" ext:"true" doc:"the reseller that gave the entity to the client, and gets it back at its release"`
}

// String names the client, and the server if there is one.
func (o *Owner) String() string {
	text := "client " + describe(o.ID, o.Name)
	if o.Server != nil {
		text += ", server " + describe(o.Server.ID, o.Server.Name)
	}
	return text
}

// target returns the client as a target of a record.
func (o *Owner) target() pg.Target {
	client := pg.Target{Type: "client", Noun: "client", ID: o.ID}
	if o.Name != nil {
		client.Name = *o.Name
	}
	return client
}

// describe returns an id with its name, such as 4 (fra1-s4).
func describe(id int64, name *string) string {
	if name == nil {
		return fmt.Sprint(id)
	}
	return fmt.Sprintf("%d (%s)", id, *name)
}

// OwnerRef names a reseller, or a server. Servers are not stored in this service: id and name are what the caller sent.
type OwnerRef struct {
	ID   int64   `json:"id" db:"id"`
	Name *string `json:"name,omitempty" db:"name"`
}

// V4 is an entity's IPv4 part.
type V4 struct {
	Address    *string `json:"address,omitempty" db:"address" doc:"the address, the first address of a range, or a prefix"`
	Full       *string `json:"full,omitempty" db:"full" doc:"address and range end in one text"`
	Gateway    *string `json:"gateway,omitempty" db:"gateway" format:"ipv4" doc:"the default gateway"`
	RangeEnd   *string `json:"range_end,omitempty" db:"range_end" format:"ipv4" doc:"the last address of a range; a single address repeats itself"`
	SubnetMask *string `json:"subnet_mask,omitempty" db:"subnet_mask" format:"ipv4" doc:"the mask of the prefix, or of the subnet around the address"`
}

// V6 is an entity's IPv6 part.
type V6 struct {
	Address *string `json:"address,omitempty" db:"address" doc:"the address or prefix"`
	Gateway *string `json:"gateway,omitempty" db:"gateway" format:"ipv6" doc:"the default gateway"`
}

type ipEntityBody struct {
	Group     rest.RefID `json:"group" db:"group_id" required:"create" example:"1" doc:"the id of the IP group"`
	Nickname  *string    `json:"nickname" db:"nickname" alias:"name" example:"rack 12" doc:"a name for people, such as rack 12"`
	BillingID *string    `json:"billing_id" db:"billing_id" example:"IP-1042"`
	VLAN      *int32     `json:"vlan" db:"vlan" min:"1" max:"4094" example:"100" doc:"the VLAN id"`
	FullIP    *fullIP    `json:"full_ip" doc:"address and range_end in one, or v6_address: 192.0.2.10, 192.0.2.10-192.0.2.20, 192.0.2.0/29 or 2001:db8::/64"`
	Owner     struct {
		ID     *int64  `json:"id" db:"id" min:"1" doc:"the client's id" example:"1"`
		Name   *string `json:"name" doc:"ignored: the name comes from the client"`
		Server struct {
			ID   *int64  `json:"id" db:"id" min:"1" example:"4"`
			Name *string `json:"name" db:"name" example:"fra1-s4"`
		} `json:"server" db:"server_" doc:"the server that uses the entity"`
	} `json:"owner" db:"owner_" doc:"the client to assign the entity to; null releases it"`
	V4 struct {
		Address    *ipText `json:"address" db:"address" alias:"address" example:"192.0.2.10" doc:"an address, the first of a range, or a prefix"`
		Full       *fullV4 `json:"full" doc:"address and range_end in one: 192.0.2.10, 192.0.2.10-192.0.2.20 or 192.0.2.0/29"`
		RangeEnd   *ipText `json:"range_end" db:"given_range_end" alias:"range_end" format:"ipv4" doc:"the last address of a range" example:"192.0.2.20"`
		Gateway    *ipText `json:"gateway" db:"gateway" alias:"gateway" format:"ipv4" example:"192.0.2.1"`
		SubnetMask *string `json:"subnet_mask" db:"given_mask" alias:"subnet_mask" format:"ipv4" example:"255.255.255.0"`
	} `json:"v4" db:"v4_" doc:"the IPv4 part"`
	V6 struct {
		Address  *ipText `json:"address" db:"address" alias:"v6_address" doc:"an address or a prefix" example:"2001:db8:1::/64"`
		RangeEnd *ipText `json:"range_end" format:"ipv6" doc:"the address itself: IPv6 has prefixes instead of ranges"`
		Gateway  *ipText `json:"gateway" db:"gateway" alias:"v6_gateway" format:"ipv6" example:"2001:db8:1::1"`
	} `json:"v6" db:"v6_" doc:"the IPv6 part"`
	Status string  `json:"status" db:"status" ext:"true" enum:"available,assigned,reserved,quarantined" doc:"reserved sets an available entity aside; available ends a reservation or a quarantine. The other two follow from owner."`
	Note   *string `json:"note" db:"note" ext:"true" max:"1000" lines:"true" doc:"why the entity is reserved, and until when; only for a reserved one"`

	v4     v4Space
	v6     v6Space
	before *ipEntityBody // the stored entity; a new one was available
}

// fullV4 has the address and the range end of an entity's v4 in one text.
type fullV4 string

// Parts implements rest.Composite.
func (f fullV4) Parts() map[string]string {
	first, last, isRange := strings.Cut(string(f), "-")
	switch {
	case isRange && last == "": // invalid: the address with its dash is refused
		first = string(f)
	case !isRange && !strings.Contains(first, "/"):
		last = first
	}
	return map[string]string{"/v4/address": first, "/v4/range_end": last}
}

// fullIP is a fullV4, or the address of an entity's v6. An empty one clears both.
type fullIP string

// Parts implements rest.Composite.
func (f fullIP) Parts() map[string]string {
	if familyOf(string(f)) == v6 {
		return map[string]string{"/v6/address": string(f)}
	}
	parts := fullV4(f).Parts()
	if f == "" {
		parts["/v6/address"] = ""
	}
	return parts
}

// Resolve checks what tags cannot express, parses v4 and v6, and sets their members to the spelling of answers.
func (b *ipEntityBody) Resolve(invalid *problem.Fields) {
	b.v4 = parseV4(b.V4.Address, b.V4.RangeEnd, b.V4.Gateway, b.V4.SubnetMask, invalid)
	b.v6 = parseV6(b.V6.Address, b.V6.RangeEnd, b.V6.Gateway, invalid)
	if len(*invalid) == 0 {
		b.V4.Address, b.V4.RangeEnd = spaceTexts(b.v4.First, b.v4.Last, b.v4.Bits)
		b.V4.Gateway, b.V4.SubnetMask = addressText(b.v4.Gateway), maskText(b.v4.Mask)
		b.V6.Address, b.V6.RangeEnd = spaceTexts(b.v6.First, b.v6.Last, b.v6.Bits)
		b.V6.Gateway = addressText(b.v6.Gateway)
	}
	if b.V4.Address == nil && b.V6.Address == nil {
		invalid.Add("/v4/address", "required", "is required, unless v6/address is set")
	} else if b.Nickname != nil && *b.Nickname == b.fullIP() {
		b.Nickname = nil // a client sent back the name of an entity without a nickname; updateEntitySQL does the same for the old name
	}
	if o := b.Owner; o.ID == nil && (o.Name != nil || o.Server.ID != nil || o.Server.Name != nil) {
		invalid.Add("/owner/id", "required", "is required where another member of owner is set")
	}
	if s := b.Owner.Server; s.ID == nil && s.Name != nil {
		invalid.Add("/owner/server/id", "required", "is required where another member of server is set")
	}
}

var entityView = pg.NewView[IPEntity]("ip_entity_view")

func (s *Service) ipEntities() []rest.Route {
	return rest.Resource[IPEntity, ipEntityBody]{
		Path:        "/entity",
		ID:          "entity_id",
		Noun:        "IP entity",
		Retry:       rest.RetryRefused,
		EditExample: `{"nickname": "rack 14", "vlan": 200}`,
		Guard: guard.Has(
			permission.NetworkEntities,
		),
		OwnGuard:  guard.HasOrClient(permission.NetworkEntities),
		ReadGuard: guard.HasOrClient(permission.NetworkEntities),
		Scope:     scopeToClient,
		ReadScope: s.readScope,
		Table:     "ip_entity",
		View:      "ip_entity_view",
		Includes: map[string]func(context.Context, pg.Querier, *IPEntity) error{
			"fields": func(ctx context.Context, q pg.Querier, item *IPEntity) (err error) {
				item.Fields, err = field.ListShown(ctx, q, "entity", item.ID)
				return err
			},
		},
		List: rest.ListOptions{
			Search: searchEntities,
			Sorts:  map[string]string{"name": "name", "address": "first_address"},
			Filters: map[string]string{
				"assigned":      "assigned",
				"billing_id":    "billing_id",
				"group_id":      "group_id",
				"name":          "name",
				"owner":         "owner_id",
				"owner_id":      "owner_id",
				"owner_missing": "owner_missing",
				"server_id":     "owner_server_id",
				"status":        "status",
				"via":           "owner_via_id",
				"vlan":          "vlan",
			},
		},
		CSV:        &rest.CSV{Names: map[string]pg.FindNames{"group": pg.NamesIn("ip_group")}},
		Lock:       lockScopes,
		Check:      s.checkEntity,
		Insert:     s.insertEntity,
		InsertMany: s.insertEntities,
		Update:     s.updateEntity,
		Delete:     deleteEntity,
		BeforeDelete: func(ctx context.Context, tx *pg.Tx, entities []IPEntity) error {
			ids := make([]int64, len(entities))
			for i, e := range entities {
				ids[i] = e.ID
			}
			return s.deletionLeases.Acquire(ctx, tx, ids)
		},
	}.Routes()
}

const insertEntitySQL = `
	INSERT INTO ip_entity (group_id, nickname, billing_id, vlan,
		v4_first, v4_last, v4_bits, v4_mask, v4_router, v6_first, v6_last, v6_bits, v6_router)
	VALUES (@group_id, @nickname, @billing_id, @vlan,
		@v4_first, @v4_last, @v4_bits, @v4_mask, @v4_router, @v6_first, @v6_last, @v6_bits, @v6_router)
	ON CONFLICT DO NOTHING RETURNING id`

// maxInsertTries is how often an insert is tried if the entities that are in the way are deleted at the same time.
const maxInsertTries = 4

const updateEntitySQL = `
	UPDATE ip_entity SET version = version + 1,
		group_id = @group_id, nickname = nullif(@nickname, full_ip), billing_id = @billing_id, vlan = @vlan,
		v4_first = @v4_first, v4_last = @v4_last, v4_bits = @v4_bits, v4_mask = @v4_mask, v4_router = @v4_router,
		v6_first = @v6_first, v6_last = @v6_last, v6_bits = @v6_bits, v6_router = @v6_router
	WHERE id = @id`

func (s *Service) insertEntity(ctx context.Context, tx *pg.Tx, b *ipEntityBody) (id int64, err error) {
	for range maxInsertTries {
		if err = tx.QueryRow(ctx, insertEntitySQL, b.columns()).Scan(&id); err == nil {
			return id, s.assign(ctx, tx, id, b)
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return 0, err
		}
		overlaps, err := b.findOverlaps(ctx, tx, 0)
		if err = cmp.Or(err, overlaps); err != nil {
			return 0, err
		}
	}
	return 0, problem.New(problem.Conflict, "Others are creating and deleting IP entities with these addresses. Try again.")
}

func (s *Service) updateEntity(ctx context.Context, tx *pg.Tx, id int64, b *ipEntityBody) error {
	err := b.updateWithoutOverlap(ctx, tx, id, func() error {
		values := b.columns()
		values["id"] = id
		_, err := tx.Exec(ctx, updateEntitySQL, values)
		return err
	})
	if err != nil {
		return err
	}
	return s.assign(ctx, tx, id, b)
}

// deleteEntity refuses while the entity is assigned or quarantined. It holds the row's lock, so that nobody can assign it meanwhile.
func deleteEntity(ctx context.Context, tx *pg.Tx, e *IPEntity) error {
	if e.Owner != nil {
		return problem.New(problem.Conflict, "IP entity %d is assigned to %s. Release it first: POST /entity/%d/release.", e.ID, e.Owner, e.ID)
	}
	if e.Status == quarantined {
		return problem.New(
			problem.Conflict,
			"IP entity %d is quarantined until %s. To delete it now, set its status to available first: PATCH /entity/%d.",
			e.ID,
			e.AvailableAt.UTC().Format(time.RFC3339),
			e.ID,
		)
	}
	_, err := tx.Exec(ctx, "DELETE FROM ip_entity WHERE id = $1", e.ID)
	return err
}

// columns returns the values of ip_entity's columns by name. A statement with another name fails.
func (b *ipEntityBody) columns() pgx.StrictNamedArgs {
	return pgx.StrictNamedArgs{
		"group_id": b.Group, "nickname": b.Nickname, "billing_id": b.BillingID, "vlan": b.VLAN,
		"v4_first": b.v4.First, "v4_last": b.v4.Last, "v4_bits": b.v4.Bits, "v4_mask": b.v4.Mask, "v4_router": b.v4.Gateway,
		"v6_first": b.v6.First, "v6_last": b.v6.Last, "v6_bits": b.v6.Bits, "v6_router": b.v6.Gateway,
	}
}

// fullIP returns the name of the entity if it has no nickname.
func (b *ipEntityBody) fullIP() string {
	switch {
	case b.V4.Address == nil:
		return string(*b.V6.Address)
	case b.V4.RangeEnd != nil:
		return string(*b.V4.Address + "-" + *b.V4.RangeEnd)
	default:
		return string(*b.V4.Address)
	}
}

// updateWithoutOverlap runs update, which updates the entity. The exclusion constraints refuse overlaps; the error then names
// the entities that are in the way.
func (b *ipEntityBody) updateWithoutOverlap(ctx context.Context, tx *pg.Tx, id int64, update func() error) error {
	constraint := tx.Savepoint(ctx, update)
	if !isOverlap(constraint) {
		return constraint
	}
	overlaps, err := b.findOverlaps(ctx, tx, id)
	if err != nil {
		return errors.Join(constraint, err)
	}
	if overlaps == nil { // the other entity has just been deleted
		return constraint
	}
	return overlaps
}

// addressSpaceLock is the name of the lock on a scope for writers.
const addressSpaceLock = "address space"
