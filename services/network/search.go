package network

import (
	"net/netip"
	"net/url"
	"strings"

	"go4.org/netipx"

	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/rest"
)

// searchEntities finds what an operator types: an address in the entity that holds it, a prefix' addresses, or a
// part of a nickname, a billing id, or the owner's or the server's name. What an owner has is found by assignments.
func searchEntities(asked url.Values) []pg.Source {
	const ofOwner = "ip_entity_of_owner"
	view, q := "", asked.Get("q")
	if asked.Has("owner") || asked.Has("owner_id") {
		view = ofOwner
	}
	if q == "" {
		return []pg.Source{{View: view}}
	}
	if condition, ok := searchAddresses(q); ok {
		return []pg.Source{{View: view, Where: []pg.Condition{condition}}}
	}
	found := searchTexts(asked)
	for i := range found {
		found[i].View = view
	}
	return found
}

// searchAddresses is the condition that an entity holds an address, or lies in a prefix.
func searchAddresses(q string) (condition pg.Condition, ok bool) {
	p, err := netip.ParsePrefix(q)
	if a, addressErr := netip.ParseAddr(q); addressErr == nil && a.Zone() == "" {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	if err != nil || p.Addr().Is4In6() {
		return condition, false
	}
	f := v4
	if p.Addr().Is6() {
		f = v6
	}
	condition = pg.Condition{SQL: f.in("{v}_first BETWEEN $1 AND $2 AND {v}_last <= $2"), Args: []any{p.Masked().Addr(), netipx.PrefixLastIP(p)}}
	if p.IsSingleIP() {
		condition.SQL = f.overlapping("$1", "$2", "0", "4503599627370495") // of any scope
	}
	return condition, true
}

// overlapping is the condition that an entity has addresses from first to last in one of the scopes, as the exclusion
// constraint's index knows them. How many have is the span's to tell.
func (f *family) overlapping(first, last, fromScope, toScope string) string {
	boxes := "v4_box(v4_first, v4_last, v4_scope, v4_scope) && v4_box({first}, {last}, {from}, {to})"
	if f == v6 {
		boxes = "v6_upper(v6_first, v6_last, v6_scope, v6_scope) && v6_upper({first}, {last}, {from}, {to}) AND v6_lower(v6_first, v6_last) && v6_lower({first}, {last})"
	}
	return f.in("{v}_first IS NOT NULL AND {v}_span && {v}_span({first}, {last}) AND "+boxes, "{first}", first, "{last}", last, "{from}", fromScope, "{to}", toScope)
}

// piece is how long the pieces of a text are that the index of pieces has.
const piece = 5

// searchTexts finds q in the texts of entities and of their assignments, which have an index of pieces, too. A text that
// is longer than one is made of some that hardly anything else has, however frequent its trigrams are.
func searchTexts(asked url.Values) []pg.Source {
	letters := []rune(strings.ReplaceAll(strings.ToLower(asked.Get("q")), "\n", " "))
	if len(letters) < piece {
		return rest.SearchIn("search", "owner_search")(asked)
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
		return pg.Source{Where: []pg.Condition{{SQL: "pieces(" + column + ") @> $1 AND strpos(" + column + ", $2) > 0", Args: []any{pieces, string(letters)}}}}
	}
	return []pg.Source{in("search"), in("owner_search")}
}
