package access

import "github.com/ironplane/ironplane/pkg/auth/principal"

// Bound limits what a key can do, whatever its owner holds. A nil Bound is no limit. A key's bound is never widened. New
// permissions are the one exception: they are added to bounds that covered all earlier ones.
type Bound = *principal.Grants

// Intersect returns the grants that both bounds allow.
func Intersect(a, b Bound) Bound {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	both := *a & *b
	return &both
}

// ParseBound reads a bound as the column api_key.bound stores it.
func ParseBound(names *[]string) Bound {
	if names == nil {
		return nil
	}
	grants := principal.ParseGrants(*names)
	return &grants
}

// BoundNames returns a bound as the column api_key.bound stores it.
func BoundNames(b Bound) *[]string {
	if b == nil {
		return nil
	}
	names := b.Names()
	return &names
}

// MakerOf returns the integration on which a key depends that the caller makes for owner: the calling integration, if owner is its
// client, or the one that the calling key depends on. nil: none.
func (c Caller) MakerOf(owner principal.Owner) *int64 {
	if c.Owner.Type == principal.Integration && owner.Type == principal.Client {
		return &c.Owner.ID
	}
	return c.Maker
}

// NarrowBound returns the bound of a key that the caller creates or edits for owner. It is at most before, and at most the calling
// key's own bound. addsKey says that the account gets a key, or a key's value, that it did not have. The caller knows such a key,
// and could use it after the account is granted more, so it is also limited to what the caller holds now.
func (c Caller) NarrowBound(before Bound, owner principal.Owner, addsKey bool) Bound {
	bound := Intersect(before, c.Bound)
	if addsKey && owner != c.Owner {
		bound = Intersect(bound, &c.Grants)
	}
	return bound
}
