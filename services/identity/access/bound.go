package access

import "github.com/ironplane/ironplane/pkg/auth/principal"

// Bound limits what a key can do, whatever its owner holds. A nil Bound is no limit. A key's bound is never widened,
// but for permissions that are new, where it covered all earlier ones.
type Bound = *principal.Grants

// Within returns what both bounds allow.
func Within(a, b Bound) Bound {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	both := *a & *b
	return &both
}

// ParseBound reads a bound as the column api_key.bound holds it.
func ParseBound(names *[]string) Bound {
	if names == nil {
		return nil
	}
	grants := principal.ParseGrants(*names)
	return &grants
}

// BoundNames returns a bound as the column api_key.bound holds it.
func BoundNames(b Bound) *[]string {
	if b == nil {
		return nil
	}
	names := b.Names()
	return &names
}

// BoundOf returns the bound of a key that the caller makes for owner or edits. It is as narrow as it was, and as the calling
// key's own. gives says that the account gets a value or a key which it did not have. The caller knows such a key, which would
// rise with the account, so it can do no more than the caller can now.
func (c Caller) BoundOf(was Bound, owner principal.Owner, gives bool) Bound {
	is := Within(was, c.Bound)
	if gives && owner != c.Owner {
		is = Within(is, &c.Grants)
	}
	return is
}
