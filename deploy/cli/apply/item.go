package apply

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ironplane/ironplane/deploy/cli/lookup"
	"github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/client/operations"
)

// applied are the nouns that apply knows, each with the member by which an item is known again.
var applied = map[string]string{
	"admin": "username", "boot-script": "name", "client": "email", "computer-part": "name", "dhcp-server": "name",
	"email-template": "name", "entity": "full_ip", "field": "slug", "file-server": "name", "forwarding-gateway": "name", "group": "name",
	"integration": "name", "port-speed": "name", "preseed": "name", "profile": "name", "shell-script": "name", "webhook": "name",
}

// Item is an item of a file.
type Item struct {
	line    int
	noun    string
	post    *operations.Operation // creates it
	members map[string]any        // as the file has them, by names with dots
	body    map[string]any        // with ids in place of names
	id      int64                 // 0: it does not exist
	changes map[string]any        // members to change, by names with dots
	present map[string]any        // as the API has it

	required []string // members that each change needs
}

func (i *Item) name() string   { return fmt.Sprint(i.members[applied[i.noun]]) }
func (i *Item) key() string    { return i.noun + " " + strings.ToLower(i.name()) }
func (i *Item) String() string { return fmt.Sprintf("line %d, %s %s", i.line, i.noun, i.name()) }

// get returns the request that views the item.
func (i *Item) get() *client.Request {
	return &client.Request{Operation: "apply", Method: http.MethodGet, Path: fmt.Sprintf("%s/%d", i.post.Route, i.id)}
}

// isScoped reports whether the item is known again only together with its group: an entity's private address exists once in a group.
func (i *Item) isScoped() bool { return i.noun == "entity" }

// Read reads a file: a list of items in YAML or JSON.
func Read(text []byte) (all []*Item, err error) {
	var nodes []yaml.Node
	if err := yaml.Unmarshal(text, &nodes); err != nil {
		return nil, fmt.Errorf("the file is not a list in YAML or JSON: %w", err)
	}
	seen := map[string]int{}
	for _, node := range nodes {
		var raw map[string]any
		if err := node.Decode(&raw); err != nil {
			return nil, fmt.Errorf("line %d: the item is not a map of members: %w", node.Line, err)
		}
		i := &Item{line: node.Line, members: map[string]any{}}
		i.noun, _ = raw["kind"].(string)
		delete(raw, "kind")
		if applied[i.noun] == "" {
			return nil, fmt.Errorf("line %d: kind must be one of %s", i.line, strings.Join(slices.Sorted(maps.Keys(applied)), ", "))
		}
		for _, o := range operations.All().Operations {
			if o.Noun != i.noun {
				continue
			}
			switch o.Verb {
			case "create":
				i.post = o
			case "update":
				i.required = requiredMembers(o)
			}
		}
		if err := i.flatten("", raw); err != nil {
			return nil, fmt.Errorf("line %d: %w", i.line, err)
		}
		if i.noun == "entity" {
			i.spellAddresses()
		}
		if i.members[applied[i.noun]] == nil {
			return nil, fmt.Errorf("line %d: the %s has no %s, by which it is known again", i.line, i.noun, applied[i.noun])
		}
		if other := seen[i.key()]; other > 0 && !i.isScoped() {
			return nil, fmt.Errorf("line %d: the %s %s is in line %d already", i.line, i.noun, i.name(), other)
		}
		seen[i.key()] = i.line
		all = append(all, i)
	}
	return all, nil
}

func requiredMembers(o *operations.Operation) (names []string) {
	for _, p := range operations.All().Bodies[o.Body] {
		if p.Required {
			names = append(names, p.Name)
		}
	}
	return names
}

// flatten stores the members of a map by names with dots, as the table of operations has them.
func (i *Item) flatten(prefix string, raw map[string]any) error {
	for name, value := range raw {
		name = prefix + name
		if i.member(name) != nil {
			i.members[name] = value
			continue
		}
		inner, ok := value.(map[string]any)
		if !ok && i.member(name+".id") != nil { // owner: ben@example.com
			i.members[name+".id"] = value
			continue
		}
		if !ok {
			return fmt.Errorf("the %s has no member %s", i.noun, name)
		}
		if err := i.flatten(name+".", inner); err != nil {
			return err
		}
	}
	return nil
}

func (i *Item) member(name string) *operations.Parameter {
	members := operations.All().Bodies[i.post.Body]
	at := slices.IndexFunc(members, func(p operations.Parameter) bool { return p.Name == name })
	if at < 0 {
		return nil
	}
	return &members[at]
}

// body returns the members of an item with ids in place of names, by names with dots. It is not complete if it refers to an item
// that the plan creates.
func (a *Applier) body(ctx context.Context, i *Item) (body map[string]any, isComplete bool, err error) {
	body, isComplete = map[string]any{}, true
	for name, value := range i.members {
		p := i.member(name)
		list, isList := value.([]any)
		if p.Of == "" || value == nil {
			body[name] = value
			continue
		}
		if !isList {
			list = []any{value}
		}
		ids := make([]any, len(list))
		for n, one := range list {
			id, err := a.resolve(ctx, p.Of, fmt.Sprint(one))
			if err != nil {
				return nil, false, fmt.Errorf("%s: %w", name, err)
			}
			isComplete = isComplete && id != 0
			ids[n] = id
		}
		if body[name] = ids; !isList {
			body[name] = ids[0]
		}
	}
	return body, isComplete, nil
}

// resolve returns the id of an item. It is 0 for one that the plan creates.
func (a *Applier) resolve(ctx context.Context, noun, text string) (int64, error) {
	if id, ok := a.ids[noun+" "+strings.ToLower(text)]; ok {
		return id, nil
	}
	return lookup.ID(ctx, a.API, noun, text)
}

// find returns the id of the item that is known by the same member, or 0.
func (a *Applier) find(ctx context.Context, i *Item) (int64, error) {
	list := operations.All().List(i.noun)
	key := applied[i.noun]
	query := url.Values{"per_page": {"100"}}
	for _, q := range list.Query {
		if q.Required {
			query.Set(q.Name, "")
		}
	}
	filter := "q"
	if slices.ContainsFunc(list.Query, func(q operations.Parameter) bool { return q.Name == key }) {
		filter = key
	}
	query.Set(filter, i.name())
	if i.isScoped() {
		query.Set("group_id", fmt.Sprint(i.body["group"]))
	}
	r := &client.Request{Operation: list.ID, Method: list.Method, Route: list.Route, Path: list.Route, Query: query}
	var ids []int64
	var candidates []lookup.Candidate
	for text, err := range a.API.Items(ctx, r) {
		if err != nil {
			return 0, err
		}
		found, err := lookup.Decode(text)
		if err != nil {
			return 0, err
		}
		if s, ok := found[key].(string); ok && strings.EqualFold(s, i.name()) {
			ids = append(ids, lookup.IDOf(found))
			candidates = append(candidates, lookup.Describe(found)...)
		}
	}
	switch len(ids) {
	case 0:
		return 0, nil
	case 1:
		return ids[0], nil
	default:
		return 0, &lookup.Error{Noun: i.noun, Name: i.name(), Matches: candidates}
	}
}

// diff returns the members of an item that are not as the file says. Secrets cannot be compared, and are left alone.
func (a *Applier) diff(ctx context.Context, i *Item) (map[string]any, error) {
	text, err := lookup.Fetch(ctx, a.API, i.get())
	if err != nil {
		return nil, err
	}
	i.present, err = lookup.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	changes := map[string]any{}
	for name, want := range i.body {
		if !i.member(name).Secret && !same(want, presentValue(i.present, name)) {
			changes[name] = want
		}
	}
	return changes, nil
}

// presentValue returns the value of a member in an answer: of a reference its id, of a time its ISO 8601. group_id stands there as
// group.
func presentValue(present map[string]any, name string) any {
	var value any = present
	for part := range strings.SplitSeq(name, ".") {
		o, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		if value, ok = o[part]; !ok {
			value = o[strings.TrimSuffix(part, "_id")]
		}
	}
	return plain(value)
}

func plain(value any) any {
	switch v := value.(type) {
	case map[string]any:
		if id, ok := v["id"]; ok {
			return id
		}
		if at, ok := v["iso_8601"]; ok {
			return at
		}
	case []any:
		all := make([]any, len(v))
		for n := range v {
			all[n] = plain(v[n])
		}
		return all
	}
	return value
}

// same compares a wanted value with a present one. A member that is left out of an answer is empty.
func same(want, present any) bool {
	if isEmpty(want) && isEmpty(present) {
		return true
	}
	wanted, err := json.Marshal(want)
	if err != nil {
		return false
	}
	got, err := json.Marshal(present)
	return err == nil && bytes.Equal(wanted, got)
}

func isEmpty(value any) bool {
	list, isList := value.([]any)
	return value == nil || value == "" || value == false || isList && len(list) == 0
}

// names returns the members that change, with their new values, but not long texts.
func names(changes map[string]any) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		text := fmt.Sprint(changes[name])
		if len(text) > 30 || strings.Contains(text, "\n") {
			all = append(all, name)
			continue
		}
		all = append(all, name+"="+text)
	}
	return all
}

// encodeBody returns a JSON body of members by names with dots.
func encodeBody(members map[string]any) ([]byte, error) {
	body := map[string]any{}
	for name, value := range members {
		operations.Put(body, name, value)
	}
	return json.Marshal(body)
}

// create creates an item. A run that was killed may have created it a moment ago: the Idempotency-Key follows from the body, so that
// the API answers with that item.
func (a *Applier) create(ctx context.Context, i *Item) error {
	body, err := encodeBody(i.body)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(append([]byte("apply "+i.post.ID+" "), body...))
	key := hex.EncodeToString(sum[:])
	for {
		id, err := a.send(ctx, i, body, key)
		if err != nil {
			return err
		}
		i.id = id
		a.ids[i.key()] = id
		_, err = lookup.Fetch(ctx, a.API, i.get())
		if !errors.Is(err, client.ErrNotFound) {
			return err
		}
		key = rand.Text() // the answer is that of an item that was deleted since
	}
}

func (a *Applier) send(ctx context.Context, i *Item, body []byte, key string) (int64, error) {
	r := &client.Request{
		Operation: i.post.ID, Method: i.post.Method, Route: i.post.Route, Path: i.post.Route, Body: body,
		Header: http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {key}},
	}
	text, err := lookup.Fetch(ctx, a.API, r)
	if err != nil {
		return 0, err
	}
	created, err := lookup.Decode(text)
	if err != nil {
		return 0, fmt.Errorf("read the response: %w", err)
	}
	return lookup.IDOf(created), nil
}

// update changes the members of an item that differ. It sends those that each change needs, too.
func (a *Applier) update(ctx context.Context, i *Item) error {
	members := maps.Clone(i.changes)
	for _, p := range i.required {
		if _, ok := members[p]; !ok {
			members[p] = presentValue(i.present, p)
		}
	}
	body, err := encodeBody(members)
	if err != nil {
		return err
	}
	_, err = lookup.Fetch(ctx, a.API, &client.Request{
		Operation: "apply", Method: http.MethodPatch, Path: fmt.Sprintf("%s/%d", i.post.Route, i.id), Body: body,
		Header: http.Header{"Content-Type": {"application/json"}}, Repeatable: true,
	})
	return err
}
