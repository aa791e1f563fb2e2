package network_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go4.org/netipx"
	"pgregory.net/rapid"

	"github.com/ironplane/ironplane/pkg/testkit"
)

// entityModel is the test's own model of an entity.
type entityModel struct {
	v4, v6             netipx.IPRange // the zero value: none
	isPrefix, isV6Net  bool
	mask               string
	gateway, v6Gateway string
	nickname, billing  string
	vlan, owner        int
	note               string // of a reserved entity
	isReassigned       bool   // its server and its nickname went with the former owner
}

// An entity that is read and sent back stays as it is. With one member changed, in either spelling or in both, only that
// member changes. A row of a CSV list creates an equal entity.
func TestEntitySentBack(outer *testing.T) {
	outer.Parallel()
	c, db := newService(outer)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	changes := func() string { return rows(outer, db, "SELECT count(*)::text FROM change") }
	rapid.Check(outer, func(t *rapid.T) {
		e := drawEntity(t)
		created := c.Do("POST", "/entity", e.body()).Want(200)
		item := fmt.Sprint("/entity/", created.ID())
		read := c.Do("GET", item, nil).Want(200)
		e.check(t, read)

		recorded := changes()
		second := c.Do("PATCH", item, read.Text).Want(200)
		if second.Text != read.Text || second.Header.Get("ETag") != read.Header.Get("ETag") || changes() != recorded {
			t.Fatalf("what was read is sent back: got %s, want %s with the same ETag and no record", second.Text, read.Text)
		}

		list := c.Do("GET", "/entity", nil, "Accept", "text/csv").Want(200).Text
		remove := func() {
			c.Do("POST", item+"/release", nil).Want(200)
			c.Do("DELETE", item, nil).Want(200)
		}
		remove()
		item = fmt.Sprint("/entity/", created.ID()+1)
		c.Do("POST", "/entity", testkit.WithoutIDs(outer, list), "Content-Type", "text/csv").Want(200)
		read = c.Do("GET", item, nil).Want(200)
		e.check(t, read)

		object := testkit.Decode[map[string]any](read)
		change := rapid.SampledFrom(e.changes()).Draw(t, "change")
		if both := rapid.Bool().Draw(t, "in all spellings"); !both {
			change.spellings = []string{rapid.SampledFrom(change.spellings).Draw(t, "spelling")}
		}
		for _, spelling := range change.spellings {
			set(object, strings.Split(spelling, "."), change.to)
		}
		change.do(&e)
		t.Logf("%v = %v", change.spellings, change.to)
		e.check(t, c.Do("PATCH", item, object).Want(200))
		remove()
	})
}

func drawEntity(t *rapid.T) (e entityModel) {
	form := rapid.SampledFrom([]string{"none", "single", "range", "prefix"}).Draw(t, "v4")
	at := rapid.IntRange(16, 90).Draw(t, "at")
	switch form {
	case "single":
		e.v4 = v4From(at, at)
	case "range":
		e.v4 = v4From(at, at+rapid.IntRange(2, 20).Draw(t, "size"))
	case "prefix":
		e.v4, e.isPrefix = v4From(at&^7, at|7), true
	}
	if form != "none" && rapid.Bool().Draw(t, "has a gateway") {
		e.gateway = "10.0.0.1"
		if e.isPrefix {
			e.gateway = e.v4.From().Next().String()
		}
	}
	if (form == "single" || form == "range") && rapid.Bool().Draw(t, "has a mask") {
		e.mask = "255.255.255.0"
	}
	if form == "none" || rapid.Bool().Draw(t, "has v6") {
		e.isV6Net = rapid.Bool().Draw(t, "is a v6 prefix")
		e.v6 = v6From(at, e.isV6Net)
		if rapid.Bool().Draw(t, "has a v6 gateway") {
			e.v6Gateway = "fe80::1"
		}
	}
	e.nickname = rapid.SampledFrom([]string{"", "rack 12"}).Draw(t, "nickname")
	e.billing = rapid.SampledFrom([]string{"", "IP-1"}).Draw(t, "billing id")
	e.vlan = rapid.SampledFrom([]int{0, 7}).Draw(t, "vlan")
	if e.owner = rapid.SampledFrom([]int{0, 17}).Draw(t, "owner"); e.owner == 0 {
		e.note = rapid.SampledFrom([]string{"", "router"}).Draw(t, "note")
	}
	return e
}

func v4From(first, last int) netipx.IPRange {
	return netipx.IPRangeFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(first)}), netip.AddrFrom4([4]byte{10, 0, 0, byte(last)}))
}

func v6From(n int, isNet bool) netipx.IPRange {
	if isNet {
		return netipx.RangeOfPrefix(netip.MustParsePrefix(fmt.Sprintf("2001:db8:0:%x::/64", n)))
	}
	a := netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", n))
	return netipx.IPRangeFrom(a, a)
}

// text returns a space in the API's spelling.
func text(r netipx.IPRange, isPrefix bool) string {
	switch {
	case isPrefix:
		p, _ := r.Prefix()
		return p.String()
	case r.From() == r.To():
		return r.From().String()
	default:
		return r.String()
	}
}

// answer returns the expected view of the entity, without its id.
func (e *entityModel) answer() map[string]any {
	full := text(e.v6, e.isV6Net)
	shown := map[string]any{"siblings_count": 0, "group": map[string]any{"id": 1, "name": "Berlin"}}
	some := func(in map[string]any, name string, value any) {
		if !reflect.ValueOf(value).IsZero() {
			in[name] = value
		}
	}
	if e.v4.IsValid() {
		full = text(e.v4, e.isPrefix)
		v4 := map[string]any{"full": full, "address": e.v4.From().String(), "range_end": e.v4.To().String()}
		mask := e.mask
		if e.isPrefix {
			v4["address"], mask = full, "255.255.255.248"
			delete(v4, "range_end")
		}
		some(v4, "gateway", e.gateway)
		some(v4, "subnet_mask", mask)
		some(shown, "gateway", e.gateway)
		some(shown, "subnet_mask", mask)
		shown["v4"], shown["address"] = v4, v4["address"]
	}
	if e.v6.IsValid() {
		address := text(e.v6, e.isV6Net)
		v6 := map[string]any{"address": address}
		some(v6, "gateway", e.v6Gateway)
		some(shown, "v6_gateway", e.v6Gateway)
		shown["v6"], shown["v6_address"] = v6, address
	}
	shown["full_ip"], shown["name"] = full, full
	if e.nickname != "" {
		shown["name"], shown["nickname"] = e.nickname, e.nickname
	}
	some(shown, "billing_id", e.billing)
	some(shown, "vlan", e.vlan)
	shown["status"] = "available"
	if e.note != "" {
		shown["status"], shown["note"] = "reserved", e.note
	}
	if e.owner > 0 {
		shown["status"] = "assigned"
		delete(shown, "note")
		owner := map[string]any{"id": e.owner, "name": fmt.Sprint("Client ", e.owner)}
		if !e.isReassigned {
			owner["server"] = map[string]any{"id": 4, "name": "fra1-s4"}
		}
		shown["owner"] = owner
	}
	return shown
}

// body returns the body that creates the entity, in the nested spelling.
func (e *entityModel) body() map[string]any {
	body := e.answer()
	for _, flat := range []string{"address", "gateway", "subnet_mask", "v6_address", "v6_gateway", "full_ip", "name", "siblings_count"} {
		delete(body, flat)
	}
	return body
}

func (e *entityModel) check(t *rapid.T, answer *testkit.Response) {
	got, want := testkit.Decode[map[string]any](answer), map[string]any{}
	delete(got, "id")
	text, _ := json.Marshal(e.answer())
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %s, want %s", answer.Text, text)
	}
}

// modelChange is an edit of one member.
type modelChange struct {
	spellings []string
	to        any
	do        func(*entityModel)
}

func (e *entityModel) changes() (all []modelChange) {
	add := func(do func(*entityModel), to any, spellings ...string) {
		all = append(all, modelChange{spellings, to, do})
	}
	add(func(e *entityModel) { e.vlan = 9 }, 9, "vlan")
	add(func(e *entityModel) { e.billing = "IP-2" }, "IP-2", "billing_id")
	add(func(e *entityModel) { e.nickname = "shelf" }, "shelf", "nickname", "name")
	add(
		func(e *entityModel) {
			if e.owner > 0 {
				e.isReassigned, e.nickname = true, ""
			}
			e.owner = 18
		},
		map[string]any{"id": 18, "name": "Client 18", "server": map[string]any{"id": 4, "name": "fra1-s4"}},
		"owner",
	)
	if e.note != "" {
		add(func(e *entityModel) { e.note = "switch" }, "switch", "note")
		add(func(e *entityModel) { e.note = "" }, "available", "status")
	}
	full := []string{"v4.full", "full_ip"}
	switch first, last := e.v4.From(), e.v4.To(); {
	case !e.v4.IsValid():
	case e.isPrefix:
		if e.gateway == "" {
			other := v4From(200, 207)
			move := func(e *entityModel) { e.v4 = other }
			add(move, text(other, true), "address", "v4.address")
			add(move, text(other, true), full...)
			add(func(e *entityModel) { e.v4, e.isPrefix = v4From(201, 204), false }, "10.0.0.201-10.0.0.204", full...)
		}
		next := first.Next().Next().String()
		add(func(e *entityModel) { e.gateway = next }, next, "gateway", "v4.gateway")
	default:
		moved := netipx.IPRangeFrom(first.Next(), last)
		if first == last {
			moved = v4From(199, 199)
		}
		add(func(e *entityModel) { e.v4 = moved }, moved.From().String(), "address", "v4.address")
		longer := netipx.IPRangeFrom(first, last.Next())
		add(func(e *entityModel) { e.v4 = longer }, longer.To().String(), "range_end", "v4.range_end")
		for _, other := range []netipx.IPRange{v4From(200, 207), v4From(201, 201)} {
			add(func(e *entityModel) { e.v4 = other }, text(other, false), full...)
		}
		add(func(e *entityModel) { e.gateway = "10.0.0.2" }, "10.0.0.2", "gateway", "v4.gateway")
		add(func(e *entityModel) { e.mask = "255.255.255.128" }, "255.255.255.128", "subnet_mask", "v4.subnet_mask")
		if e.mask == "" && e.gateway == "" {
			add(func(e *entityModel) { e.v4, e.isPrefix = v4From(208, 215), true }, "10.0.0.208/29", full...)
		}
	}
	if e.v6.IsValid() {
		other := v6From(0x200, !e.isV6Net)
		spellings := []string{"v6_address", "v6.address"}
		if !e.v4.IsValid() {
			spellings = append(spellings, "full_ip")
		}
		add(func(e *entityModel) { e.v6, e.isV6Net = other, !e.isV6Net }, text(other, !e.isV6Net), spellings...)
		add(func(e *entityModel) { e.v6Gateway = "fe80::2" }, "fe80::2", "v6_gateway", "v6.gateway")
	}
	return slices.Clip(all)
}

func set(object map[string]any, path []string, value any) {
	if len(path) == 1 {
		object[path[0]] = value
		return
	}
	set(object[path[0]].(map[string]any), path[1:], value)
}
