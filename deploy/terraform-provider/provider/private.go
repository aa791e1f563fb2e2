package provider

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
)

// Keys of the private state.
const (
	etagKey    = "etag"    // the version of the item at the last read
	setKey     = "set"     // the members that the configuration had at the last apply
	pendingKey = "pending" // a creation whose outcome is not known
)

// pending is a creation whose outcome is not known. The API answers to it once more what it answered before, or carries it out.
type pending struct {
	Key  string          `json:"key"`
	Body json.RawMessage `json:"body"`
	At   time.Time       `json:"at"`
}

// pendingFor is how long a creation is sent again: an hour less than the API knows its key, because clocks differ.
const pendingFor = 23 * time.Hour

// private is a resource's private state.
type private interface {
	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}

// wasSet returns the names of the members that the configuration had at the last apply.
func wasSet(ctx context.Context, p private) map[string]bool {
	set := map[string]bool{}
	for _, name := range setNames(ctx, p) {
		set[name] = true
	}
	return set
}

func setNames(ctx context.Context, p private) (names []string) {
	getPrivate(ctx, p, setKey, &names)
	return names
}

func setSet(ctx context.Context, p private, k *Kind, config any, d *diag.Diagnostics) {
	names := []string{}
	leaves(k.Attributes, "", func(name string, _ *Attribute) {
		if at(config, name) != nil {
			names = append(names, name)
		}
	})
	slices.Sort(names)
	setPrivate(ctx, p, setKey, names, d)
}

func getPrivate(ctx context.Context, p private, key string, into any) bool {
	text, d := p.GetKey(ctx, key)
	return !d.HasError() && text != nil && json.Unmarshal(text, into) == nil
}

func setPrivate(ctx context.Context, p private, key string, value any, d *diag.Diagnostics) {
	text, err := json.Marshal(value)
	if err != nil {
		d.AddError("Cannot store the private state", err.Error())
		return
	}
	d.Append(p.SetKey(ctx, key, text)...)
}
