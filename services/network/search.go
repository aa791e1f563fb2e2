package network

import (
	"bytes"
	"context"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go4.org/netipx"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
)

// searchEntities finds what an operator types: an address in the entity that holds it, the addresses of a prefix or a
// range, the beginning of an address, or a part of a nickname, a billing id, or the owner's or the server's name.
func searchEntities(ctx context.Context, asked url.Values) []pg.Source {
	owned := asked.Has("owner") || asked.Has("owner_id") || principal.From(ctx).Client() != 0 // which its own alone is shown to
	q, view := asked.Get("q"), viewFor(asked, owned)
	found := searchAddresses(q)
	switch {
	case found == nil && q != "":
		found = searchTexts(ctx, asked)
		if searchedAlone(asked) {
			found[1].View = ofOwner
		}
		found = append(found, searchBeginning(q)...)
	case found == nil && view != "":
		found = []pg.Source{{}}
	}
	for i := range found {
		if found[i].View == "" {
			found[i].View = view
		}
	}
	return found
}

const (
	ofOwner = "ip_entity_of_owner"
	free    = "ip_entity_free"
)

// viewFor is the view whose indexes find what is asked for, of one owner or of all; empty: that of all entities.
func viewFor(asked url.Values, owned bool) string {
	sort := strings.TrimPrefix(asked.Get("sort"), "-")
	switch {
	case asked.Get("assigned") == "false" && sort != "name" && (sort != "address" || asked.Has("group_id")):
		return free
	case owned && sort != "address":
		return ofOwner
	default:
		return ""
	}
}

// searchedAlone tells whether q is the only thing that is asked for.
func searchedAlone(asked url.Values) bool {
	for name := range asked {
		if !slices.Contains([]string{"q", "count", "cursor", "page", "per_page"}, name) {
			return false
		}
	}
	return true
}

// searchAddresses finds the entity that holds an address, or those in a prefix or a range.
func searchAddresses(q string) []pg.Source {
	if a, err := netip.ParseAddr(q); err == nil && a.Zone() == "" && !a.Is4In6() && !strings.HasSuffix(q, "::") {
		return []pg.Source{holding(a)}
	}
	r, err := netipx.ParseIPRange(q)
	if p, prefixErr := netip.ParsePrefix(q); prefixErr == nil {
		r, err = netipx.RangeOfPrefix(p), nil
	}
	if err != nil || r.From().Is4In6() || r.From().Zone() != "" {
		return nil
	}
	f := familyOf(q)
	return []pg.Source{{Where: []pg.Condition{f.from(r), {SQL: f.in("{v}_last <= $1"), Args: []any{r.To()}}}}}
}

// searchBeginning finds what is written with q at its beginning, from its first dot or colon on, and what holds the lowest
// such address.
func searchBeginning(q string) (found []pg.Source) {
	f, spans := beginning(q)
	for i, r := range spans {
		if i == 0 {
			found = append(found, holding(r.From()))
		}
		found = append(found, pg.Source{Where: []pg.Condition{f.from(r)}})
	}
	return found
}

// beginning is which addresses are written with q at their beginning. Of its last part there may be more digits, unless a
// separator ends it.
func beginning(q string) (f *family, spans []netipx.IPRange) {
	f = familyOf(q)
	if strings.HasSuffix(q, "::") { // one ends a part as well
		q = q[:len(q)-1]
	}
	parts := strings.Split(q, f.separator)
	last := len(parts) - 1
	if last == 0 || last >= f.bits/f.partBits {
		return f, nil
	}
	var begin []byte
	for _, part := range parts[:last] {
		n, ok := f.part(part)
		if !ok {
			return f, nil
		}
		begin = f.appendPart(begin, n)
	}
	if parts[last] == "" {
		return f, []netipx.IPRange{netipx.IPRangeFrom(f.filled(begin, 0), f.filled(begin, 0xff))}
	}
	n, ok := f.part(parts[last])
	if !ok {
		return f, nil
	}
	largest, most := uint64(1)<<f.partBits-1, f.digits-len(parts[last])
	for more, size := 0, uint64(1); more <= most && n*size <= largest; more, size = more+1, size*uint64(f.base) {
		if parts[last][0] == '0' &&
			(f == v4 && more > 0 || f == v6 && more < most) { // what begins with 0 is 0, or is written with all its digits
			continue
		}
		from, to := f.appendPart(slices.Clip(begin), n*size), f.appendPart(slices.Clip(begin), min(n*size+size-1, largest))
		spans = append(spans, netipx.IPRangeFrom(f.filled(from, 0), f.filled(to, 0xff)))
	}
	return f, spans
}

// part reads what stands between two separators of an address.
func (f *family) part(text string) (n uint64, ok bool) {
	n, err := strconv.ParseUint(text, f.base, f.partBits)
	return n, err == nil && len(text) <= f.digits && (f == v6 || text == "0" || text[0] != '0')
}

func (f *family) appendPart(begin []byte, n uint64) []byte {
	if f == v6 {
		begin = append(begin, byte(n>>8))
	}
	return append(begin, byte(n))
}

// filled is the address that begins with these bytes and goes on with this one.
func (f *family) filled(begin []byte, with byte) netip.Addr {
	a, _ := netip.AddrFromSlice(append(slices.Clip(begin), bytes.Repeat([]byte{with}, f.bits/8-len(begin))...))
	return a
}

// from is the condition that an entity begins in a range.
func (f *family) from(r netipx.IPRange) pg.Condition {
	return pg.Condition{SQL: f.in("{first} BETWEEN $1 AND $2"), Args: []any{r.From(), r.To()}}
}

// holding finds what has an address, in any scope.
func holding(a netip.Addr) pg.Source {
	f := v4
	if a.Is6() {
		f = v6
	}
	return pg.Source{Where: []pg.Condition{{SQL: f.anywhere("$1"), Args: []any{a}}}}
}

// anywhere is the condition that an entity has an address, in whichever scope.
func (f *family) anywhere(address string) string {
	return f.overlapping(address, address, "0", "4503599627370495")
}

// overlapping is the condition that an entity has addresses from first to last in one of the scopes, as the exclusion
// constraint's index knows them. How many have is the span's to tell.
func (f *family) overlapping(first, last, fromScope, toScope string) string {
	boxes := "v4_box(v4_first, v4_last, v4_scope, v4_scope) && v4_box({first}, {last}, {from}, {to})"
	if f == v6 {
		boxes = "v6_upper(v6_first, v6_last, v6_scope, v6_scope) && v6_upper({first}, {last}, {from}, {to}) " +
			"AND v6_lower(v6_first, v6_last) && v6_lower({first}, {last})"
	}
	return f.in(
		"{v}_first IS NOT NULL AND {v}_span && {v}_span({first}, {last}) AND "+boxes,
		"{first}",
		first,
		"{last}",
		last,
		"{from}",
		fromScope,
		"{to}",
		toScope,
	)
}

// piece is how long the pieces of a text are that the index of pieces has.
const piece = 5

// searchTexts finds q in the texts of entities, and in those of their assignments. They have an index of pieces, too. A text that
// is longer than one is made of some that hardly anything else has, however frequent its trigrams are.
func searchTexts(ctx context.Context, asked url.Values) []pg.Source {
	letters := []rune(strings.ReplaceAll(strings.ToLower(asked.Get("q")), "\n", " "))
	if len(letters) < piece {
		return rest.SearchIn("search", "owner_search")(ctx, asked)
	}
	var pieces []string
	left := len(letters)
	for ; left >= piece; left -= piece {
		pieces = append(pieces, string(letters[left-piece:left]))
	}
	if left > 1 || left == 1 && len(pieces) == 1 { // after two pieces, one letter tells little
		pieces = append(pieces, string(letters[:piece]))
	}
	in := func(column string) pg.Source {
		return pg.Source{
			Where: []pg.Condition{{SQL: "pieces(" + column + ") @> $1 AND strpos(" + column + ", $2) > 0", Args: []any{pieces, string(letters)}}},
		}
	}
	return []pg.Source{in("search"), in("owner_search")}
}
