package rows

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
)

// Each table has its own random source.
const (
	entitySource uint64 = iota + 1
	customerSource
	adminSource
	keySource
)

// fillNetwork writes port speeds, IP groups and IP entities. It requires a database without these.
func fillNetwork(ctx context.Context, l *loader) error {
	var used bool
	if err := l.tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM ip_group) OR EXISTS (SELECT FROM port_speed)").Scan(&used); err != nil {
		return err
	}
	if used {
		return errors.New("the database has IP groups or port speeds: seed an empty one")
	}
	if err := fillPortSpeeds(ctx, l); err != nil {
		return err
	}
	groups := l.groups()
	maxID, err := l.maxID(ctx, "ip_group")
	if err != nil {
		return err
	}
	err = l.copy(ctx, "ip_group", []string{"id", "name", "billing_id", "reserved"}, groups, func(i int) []any {
		city, n := nameSite(i)
		return []any{maxID + int64(i) + 1, fmt.Sprintf("%s %d", city, n), fmt.Sprintf("%.3s%d", city, n), i%50 == 49}
	})
	if err != nil {
		return err
	}
	if err := l.setSequence(ctx, "ip_group"); err != nil {
		return err
	}
	return fillEntities(ctx, l, groups)
}

var cities = []string{
	"Amsterdam",
	"Ashburn",
	"Berlin",
	"Chicago",
	"Dallas",
	"Frankfurt",
	"Helsinki",
	"London",
	"Madrid",
	"Paris",
	"Prague",
	"Singapore",
	"Sydney",
	"Tokyo",
	"Toronto",
	"Warsaw",
}

// nameSite returns the city of a site, and the site's number in that city.
func nameSite(i int) (city string, n int) { return cities[i%len(cities)], i/len(cities) + 1 }

// fillPortSpeeds writes the usual port speeds.
func fillPortSpeeds(ctx context.Context, l *loader) error {
	speeds := []struct {
		name string
		mbit int
	}{
		{"10 Mbit/s", 10},
		{"100 Mbit/s", 100},
		{"200 Mbit/s", 200},
		{"500 Mbit/s", 500},
		{"1 Gbit/s", 1000},
		{"2.5 Gbit/s", 2500},
		{"5 Gbit/s", 5000},
		{
			"10 Gbit/s",
			10_000,
		},
		{"25 Gbit/s", 25_000},
		{"40 Gbit/s", 40_000},
		{"50 Gbit/s", 50_000},
		{"100 Gbit/s", 100_000},
		{"200 Gbit/s", 200_000},
		{"400 Gbit/s", 400_000},
	}
	err := l.copy(ctx, "port_speed", []string{"id", "name", "billing_id", "speed"}, len(speeds), func(i int) []any {
		return []any{i + 1, speeds[i].name, fmt.Sprintf("PORT-%d", speeds[i].mbit), speeds[i].mbit}
	})
	if err != nil {
		return err
	}
	return l.setSequence(ctx, "port_speed")
}

// fillEntities writes the IP entities with their assignments and counts. Indexes are built afterwards.
func fillEntities(ctx context.Context, l *loader, groups int) error {
	var restore []string
	for _, table := range []string{"ip_free", "ip_assignment", "ip_entity"} {
		statements, err := l.dropIndexes(ctx, table)
		if err != nil {
			return err
		}
		restore = append(statements, restore...)
	}
	maxID, err := l.maxID(ctx, "ip_group")
	if err != nil {
		return err
	}
	firstGroup := maxID - int64(groups) + 1
	columns := []string{"id", "group_id", "nickname", "billing_id", "vlan",
		"v4_first", "v4_last", "v4_bits", "v4_mask", "v4_router", "v6_first", "v6_last", "v6_bits", "v6_router"}
	space, r, current := newSpace(groups, l.Entities), l.random(entitySource), subnet{}
	err = l.copy(ctx, "ip_entity", columns, l.Entities, func(i int) []any {
		slot := i % subnetSize
		if slot == 0 {
			u := r.Float64()
			current = space.next(r, int(u*u*float64(groups))) // sites differ in size
		}
		c := l.drawCustomer(i)
		row := []any{int64(i + 1), firstGroup + int64(current.group), nil, nil, current.vlan}
		if c.owner > 0 {
			if r.IntN(3) > 0 {
				row[2] = fmt.Sprintf("%s-%s%02d", word(c.owner), roles[r.IntN(len(roles))], 1+r.IntN(20))
			}
			row[3] = fmt.Sprintf("SVC-%07d", i+1)
		}
		v4, v6 := current.v4Columns(r, slot), current.v6Columns(r, slot)
		return append(append(row, v4[:]...), v6[:]...)
	})
	if err != nil {
		return err
	}
	if err := l.setSequence(ctx, "ip_entity"); err != nil {
		return err
	}
	if err := assignEntities(ctx, l); err != nil {
		return err
	}
	l.filled = append(l.filled, "ref", "ip_assignment", "ip_free", "ip_group_count", "ip_group_server_count", "ip_free_count", "ip_free_chunk")
	// The rows that the disabled triggers and the folding of counts would have written.
	return l.run(ctx, slices.Concat([]string{
		"INSERT INTO ref (type, id, name, version) SELECT DISTINCT 'client', owner_id, owner_name, 1 FROM assigned",
		`INSERT INTO ip_assignment (entity_id, group_id, owner_id, owner_name, server_id, server_name, entity_name, vlan)
		SELECT e.id, e.group_id, owner_id, owner_name, server_id, server_name, e.name, e.vlan FROM assigned JOIN ip_entity e ON e.id = entity_id ORDER BY e.id`,
		"INSERT INTO ip_free SELECT * FROM ip_unassigned",
		"INSERT INTO ip_group_server_count SELECT * FROM ip_group_server_counted",
		"INSERT INTO ip_group_count SELECT * FROM ip_group_counted",
		"INSERT INTO ip_free_count SELECT * FROM ip_free_counted",
	}, restore, []string{"INSERT INTO ip_free_chunk SELECT * FROM ip_free_chunked"}))
}

// assignEntities writes the owner and server of each entity into a temporary table.
func assignEntities(ctx context.Context, l *loader) error {
	// ip_assignment has the entities' names, which the database computes, so it is filled from this table later.
	const assigned = "CREATE TEMPORARY TABLE assigned AS SELECT entity_id, owner_id, owner_name, server_id, server_name FROM ip_assignment"
	if _, err := l.tx.Exec(ctx, assigned); err != nil {
		return err
	}
	return l.copy(ctx, "assigned", []string{"entity_id", "owner_id", "owner_name", "server_id", "server_name"}, l.Entities, func(i int) []any {
		c := l.drawCustomer(i)
		if c.owner == 0 {
			return nil
		}
		row := []any{int64(i + 1), c.owner, title(word(c.owner)) + " GmbH", nil, nil}
		if c.server > 0 {
			row[3], row[4] = c.server, fmt.Sprintf("srv-%06d", c.server)
		}
		return row
	})
}

var roles = []string{"web", "db", "mail", "vpn", "cache", "dns", "app", "ipmi"}

// customer has the owner and the server of an entity; 0: none.
type customer struct{ owner, server int64 }

// entitiesPerMachine is the number of consecutive entities of a machine. The last machine may have fewer.
const entitiesPerMachine = 4

// drawCustomer returns the random customer of an entity. All entities of a machine have the same.
func (l *loader) drawCustomer(i int) customer {
	machine := uint64(i) / entitiesPerMachine
	r := rand.NewPCG(l.Seed+customerSource, machine)
	n := r.Uint64()
	if n%100 >= 60 {
		return customer{}
	}
	u := float64(n>>11) / (1 << 53)
	c := customer{owner: 1 + int64(u*u*float64(l.clients()))} // some clients have many entities
	if n>>7%10 > 0 {
		c.server = int64(machine) + 1
	}
	return c
}

// word returns a pronounceable name. It differs for each number below 999,983.
func word(n int64) string {
	const consonants, vowels = "bdfghjklmnprstvwzcqx", "aeiou"
	n = n * 654_321 % 999_983
	text := make([]byte, 0, 6)
	for range 3 {
		text = append(text, consonants[n%20], vowels[n/20%5])
		n /= 100
	}
	return string(text)
}

func title(word string) string { return string(word[0]-'a'+'A') + word[1:] }
