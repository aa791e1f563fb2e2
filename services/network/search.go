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

// searchEntities finds entities by what an operator types. An address finds the entity that contains it. A prefix or a
// range finds the entities inside. Other texts are the beginning of an address, or a part of a nickname, a billing id,
// or a name of an owner or server.
func searchEntities(ctx context.Context, query url.Values) []pg.Source {
	owned := query.Has("owner") || query.Has("owner_id") || principal.FromContext(ctx).Client() != 0 // clients see only their own entities
	q, from := query.Get("q"), chooseSources(query, owned)
	found := searchAddresses(q)
	switch {
	case found == nil && q != "":
		found = searchTexts(ctx, query)
		if isOnlyFilter(query) {
			found[1].View = ownerView
		}
		found = append(found, searchBeginning(q)...)
	case found == nil:
		return from
	}
	if from == nil {
		return found
	}
	var all []pg.Source
	for _, f := range found {
		for _, source := range from {
			all = append(all, pg.Source{View: source.View, Where: slices.Concat(f.Where, source.Where)})
		}
	}
	return all
}

const (
	ownerView = "ip_entity_of_owner"
	freeView  = "ip_entity_free"
	heldView  = "ip_entity_held"
)

// The rows of heldView by status. Each condition is that of an index.
var (
	reservedRows = pg.Source{View: heldView, Where: []pg.Condition{{SQL: "released_until IS NULL"}}}
	releasedRows = pg.Source{View: heldView, Where: []pg.Condition{{SQL: "released_until IS NOT NULL"}}}
)

// chooseSources returns the views whose indexes fit the filters, or nothing for the view of all entities.
func chooseSources(query url.Values, owned bool) []pg.Source {
	sort := strings.TrimPrefix(query.Get("sort"), "-")
	byIndex := sort != "name" && (sort != "address" || query.Has("group_id"))
	switch status := query.Get("status"); {
	case status == quarantined:
		return []pg.Source{releasedRows}
	case status == reserved && (sort != "address" || query.Has("group_id")):
		return []pg.Source{reservedRows}
	case status == available && byIndex:
		return []pg.Source{{View: freeView}, releasedRows}
	case query.Get("assigned") == "false" && byIndex:
		return []pg.Source{{View: freeView}, reservedRows, releasedRows}
	case query.Has("owner_missing") || owned && sort != "address":
		return []pg.Source{{View: ownerView}}
	default:
		return nil
	}
}

// isOnlyFilter reports whether q is the only filter of the query.
func isOnlyFilter(query url.Values) bool {
	for name := range query {
		if !slices.Contains([]string{"q", "count", "cursor", "page", "per_page"}, name) {
			return false
		}
	}
	return true
}

// searchAddresses finds the entity that contains an address, or the entities inside a prefix or a range.
func searchAddresses(q string) []pg.Source {
	if a, err := netip.ParseAddr(q); err == nil && a.Zone() == "" && !a.Is4In6() && !strings.HasSuffix(q, "::") {
		return []pg.Source{entityWith(a)}
	}
	r, err := netipx.ParseIPRange(q)
	if p, prefixErr := netip.ParsePrefix(q); prefixErr == nil {
		r, err = netipx.RangeOfPrefix(p), nil
	}
	if err != nil || r.From().Is4In6() || r.From().Zone() != "" {
		return nil
	}
	f := familyOf(q)
	return []pg.Source{{Where: []pg.Condition{f.beginsIn(r), {SQL: f.writeSQL("{v}_last <= $1"), Args: []any{r.To()}}}}}
}

// searchBeginning finds the entities whose address starts with q, and the entity that contains the lowest such address.
// q must have a dot or a colon.
func searchBeginning(q string) (found []pg.Source) {
	f, spans := spansBeginning(q)
	for i, r := range spans {
		if i == 0 {
			found = append(found, entityWith(r.From()))
		}
		found = append(found, pg.Source{Where: []pg.Condition{f.beginsIn(r)}})
	}
	return found
}

// spansBeginning returns the ranges of addresses whose text starts with q. The last part of q may go on with more digits,
// unless q ends with a separator.
func spansBeginning(q string) (f *family, spans []netipx.IPRange) {
	f = familyOf(q)
	if strings.HasSuffix(q, "::") { // a single colon ends a part, too
		q = q[:len(q)-1]
	}
	parts := strings.Split(q, f.separator)
	last := len(parts) - 1
	if last == 0 || last >= f.bits/f.partBits {
		return f, nil
	}
	var begin []byte
	for _, part := range parts[:last] {
		n, ok := f.parsePart(part)
		if !ok {
			return f, nil
		}
		begin = f.appendPart(begin, n)
	}
	if parts[last] == "" {
		return f, []netipx.IPRange{netipx.IPRangeFrom(f.fillAddress(begin, 0), f.fillAddress(begin, 0xff))}
	}
	n, ok := f.parsePart(parts[last])
	if !ok {
		return f, nil
	}
	maxPart, maxMore := uint64(1)<<f.partBits-1, f.digits-len(parts[last])
	for more, size := 0, uint64(1); more <= maxMore && n*size <= maxPart; more, size = more+1, size*uint64(f.base) {
		if parts[last][0] == '0' &&
			(f == v4 && more > 0 || f == v6 && more < maxMore) { // a part that starts with 0 is 0 in IPv4, and has all its digits in IPv6
			continue
		}
		from, to := f.appendPart(slices.Clip(begin), n*size), f.appendPart(slices.Clip(begin), min(n*size+size-1, maxPart))
		spans = append(spans, netipx.IPRangeFrom(f.fillAddress(from, 0), f.fillAddress(to, 0xff)))
	}
	return f, spans
}

// parsePart parses the text between two separators of an address.
func (f *family) parsePart(text string) (n uint64, ok bool) {
	n, err := strconv.ParseUint(text, f.base, f.partBits)
	return n, err == nil && len(text) <= f.digits && (f == v6 || text == "0" || text[0] != '0')
}

func (f *family) appendPart(begin []byte, n uint64) []byte {
	if f == v6 {
		begin = append(begin, byte(n>>8))
	}
	return append(begin, byte(n))
}

// fillAddress returns the address that starts with begin and repeats with to its end.
func (f *family) fillAddress(begin []byte, with byte) netip.Addr {
	a, _ := netip.AddrFromSlice(append(slices.Clip(begin), bytes.Repeat([]byte{with}, f.bits/8-len(begin))...))
	return a
}

// beginsIn returns the condition that an entity's first address lies in a range.
func (f *family) beginsIn(r netipx.IPRange) pg.Condition {
	return pg.Condition{SQL: f.writeSQL("{first} BETWEEN $1 AND $2"), Args: []any{r.From(), r.To()}}
}

// entityWith finds the entities that contain an address, in any scope.
func entityWith(a netip.Addr) pg.Source {
	f := v4
	if a.Is6() {
		f = v6
	}
	return pg.Source{Where: []pg.Condition{{SQL: f.holdsAddress("$1"), Args: []any{a}}}}
}

// holdsAddress returns the condition that an entity contains an address, in any scope.
func (f *family) holdsAddress(address string) string {
	return f.overlapSQL(address, address, "0", "4503599627370495")
}

// overlapSQL returns the condition that an entity overlaps with the addresses from first to last in one of the scopes. It
// uses the exclusion constraint's index. The condition on {v}_span is there for the planner's estimate.
func (f *family) overlapSQL(first, last, fromScope, toScope string) string {
	boxes := "v4_box(v4_first, v4_last, v4_scope, v4_scope) && v4_box({first}, {last}, {from}, {to})"
	if f == v6 {
		boxes = "v6_upper(v6_first, v6_last, v6_scope, v6_scope) && v6_upper({first}, {last}, {from}, {to}) " +
			"AND v6_lower(v6_first, v6_last) && v6_lower({first}, {last})"
	}
	return f.writeSQL(
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

// pieceLength is the number of letters in each entry of the pieces index.
const pieceLength = 5

// searchTexts finds q in the texts of entities and of their assignments. Texts of at least pieceLength letters use the
// pieces index: its entries are rarer than trigrams, which long lists of similar names share.
func searchTexts(ctx context.Context, query url.Values) []pg.Source {
	letters := []rune(strings.ReplaceAll(strings.ToLower(query.Get("q")), "\n", " "))
	if len(letters) < pieceLength {
		return rest.SearchIn("search", "owner_search")(ctx, query)
	}
	var pieces []string
	left := len(letters)
	for ; left >= pieceLength; left -= pieceLength {
		pieces = append(pieces, string(letters[left-pieceLength:left]))
	}
	if left > 1 || left == 1 && len(pieces) == 1 { // after two pieces, one more letter selects little
		pieces = append(pieces, string(letters[:pieceLength]))
	}
	in := func(column string) pg.Source {
		return pg.Source{
			Where: []pg.Condition{{SQL: "pieces(" + column + ") @> $1 AND strpos(" + column + ", $2) > 0", Args: []any{pieces, string(letters)}}},
		}
	}
	return []pg.Source{in("search"), in("owner_search")}
}
