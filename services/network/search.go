package network

import (
	"net/netip"
	"strings"

	"go4.org/netipx"

	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/rest"
)

// searchEntities finds what an operator types: an address in the entity that holds it, a prefix' addresses, or a
// part of a nickname, a billing id, or the owner's or the server's name.
func searchEntities(q string) pg.Condition {
	p, err := netip.ParsePrefix(q)
	if a, addressErr := netip.ParseAddr(q); addressErr == nil && a.Zone() == "" {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	if err != nil || p.Addr().Is4In6() {
		ofOwner := searchColumn("owner_search", q)
		ofOwner.Alone = "ip_entity_of_owner"
		search := searchColumn("search", q)
		search.Or = &ofOwner
		return search
	}
	column, span := "v4_span", "v4_span($1, $2)"
	if p.Addr().Is6() {
		column, span = "v6_span", "v6_span($1, $2)"
	}
	relation := " <@ "
	if p.IsSingleIP() {
		relation = " && "
	}
	return pg.Condition{SQL: column + relation + span, Args: []any{p.Masked().Addr(), netipx.PrefixLastIP(p)}}
}

// piece is how long the pieces of a text are that the index of pieces has.
const piece = 5

// searchColumn is rest.SearchColumn, for a column with an index of pieces, too. A text that is longer than one is made of
// some that hardly anything else has, however frequent its trigrams are.
func searchColumn(column, q string) pg.Condition {
	letters := []rune(strings.ReplaceAll(strings.ToLower(q), "\n", " "))
	if len(letters) < piece {
		return rest.SearchColumn(column, q)
	}
	var pieces []string
	rest := len(letters)
	for ; rest >= piece; rest -= piece {
		pieces = append(pieces, string(letters[rest-piece:rest]))
	}
	if rest > 1 || rest == 1 && len(pieces) == 1 { // after two pieces, one letter tells little
		pieces = append(pieces, string(letters[:piece]))
	}
	return pg.Condition{SQL: "pieces(" + column + ") @> $1 AND strpos(" + column + ", $2) > 0", Args: []any{pieces, string(letters)}}
}
