package provider

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/client/operations"
)

// item is the resource of a kind.
type item struct {
	kind *Kind
	api  *api
}

func (i *item) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + i.kind.Name
}

func (i *item) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = i.kind.resourceSchema()
}

func (i *item) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	i.api, _ = req.ProviderData.(*api)
}

// Create creates the item, or takes over one that exists as long as Ironplane does.
func (i *item) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	k, d := i.kind, &resp.Diagnostics
	config, plan := tree(req.Config.Raw, d), tree(req.Plan.Raw, d)
	if !isConfigured(i.api, d) {
		return
	}
	setSet(ctx, resp.Private, k, config, d)
	ctx, cancel := context.WithTimeout(ctx, i.api.timeout)
	defer cancel()
	if k.isAdopted() {
		answer, err := i.edit(ctx, plan, k.body(config), "")
		if err != nil {
			k.report(d, "edit", err)
			return
		}
		i.keep(ctx, &resp.State.Raw, resp.Private, plan, answer, d)
		return
	}
	r, err := k.request(k.create, plan, k.body(config))
	if err != nil {
		k.report(d, "create", err)
		return
	}
	p := pending{rand.Text(), r.Body, time.Now().UTC()}
	if codes, _ := member(config, "force").([]any); k.installs && len(codes) > 0 {
		r.Query.Set("force", strings.Trim(strings.ReplaceAll(fmt.Sprint(codes), " ", ","), "[]"))
	}
	answer, err := i.create(ctx, r, p)
	if errors.Is(err, client.ErrUnknownOutcome) {
		// The next run finds out with which id, and replaces the item: Terraform keeps no item whose creation failed.
		setPrivate(ctx, resp.Private, pendingKey, p, d)
		resp.State.Raw = untree(resp.State.Raw.Type(), withoutUnknown(plan), d)
	}
	if err != nil {
		k.report(d, "create", err)
		return
	}
	i.keep(ctx, &resp.State.Raw, resp.Private, plan, answer, d)
	if k.installs {
		i.await(ctx, req, resp)
	}
}

// create sends a creation, and returns the item as later reads show it.
func (i *item) create(ctx context.Context, r *client.Request, p pending) (*answered, error) {
	r.Header.Set("Idempotency-Key", p.Key)
	return i.api.send(ctx, r)
}

// Read brings the state up to date. An item that is gone is removed from it.
func (i *item) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	d := &resp.Diagnostics
	state := tree(req.State.Raw, d)
	if !isConfigured(i.api, d) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, i.api.timeout)
	defer cancel()
	var answer *answered
	var err error
	var p pending
	if getPrivate(ctx, req.Private, pendingKey, &p) {
		if time.Since(p.At) > pendingFor {
			k := i.kind.label()
			d.AddWarning("The outcome of a creation is not known", fmt.Sprintf("The creation of a %s got no answer at %s, and it is too late to "+
				"send it again. If the API has the %s, import it. Otherwise, the next apply creates another one.", k, p.At.Format(time.RFC3339), k))
			resp.State.RemoveResource(ctx)
			return
		}
		answer, err = i.resume(ctx, state, p)
	} else {
		answer, err = i.view(ctx, state)
	}
	if errors.Is(err, client.ErrNotFound) {
		resp.State.RemoveResource(ctx)
		return
	}
	if err != nil {
		i.kind.report(d, "read", err)
		return
	}
	d.Append(resp.Private.SetKey(ctx, pendingKey, nil)...)
	i.keep(ctx, &resp.State.Raw, resp.Private, state, answer, d)
}

// resume ends a creation whose outcome is not known: the API answers as it did, or creates the item now. The error is ErrNotFound if
// the API refuses to.
func (i *item) resume(ctx context.Context, state any, p pending) (*answered, error) {
	r, err := i.kind.request(i.kind.create, state, p.Body)
	if err != nil {
		return nil, err
	}
	answer, err := i.create(ctx, r, p)
	if errors.Is(err, client.ErrInvalid) || errors.Is(err, client.ErrConflict) {
		return nil, fmt.Errorf("%w: %w", client.ErrNotFound, err)
	}
	return answer, err
}

// Update sends what changed, unless somebody else has changed the item since the plan.
func (i *item) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	k, d := i.kind, &resp.Diagnostics
	config, plan, state := tree(req.Config.Raw, d), tree(req.Plan.Raw, d), tree(req.State.Raw, d)
	if !isConfigured(i.api, d) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, i.api.timeout)
	defer cancel()
	var etag string
	getPrivate(ctx, req.Private, etagKey, &etag)
	var answer *answered
	var err error
	if body := k.changes(config, plan, state, wasSet(ctx, req.Private)); body != nil && k.update != nil {
		answer, err = i.edit(ctx, state, body, etag)
	} else {
		answer, err = i.view(ctx, state)
	}
	if err != nil {
		k.report(d, "edit", err)
		return
	}
	setSet(ctx, resp.Private, k, config, d)
	i.keep(ctx, &resp.State.Raw, resp.Private, plan, answer, d)
}

// edit sends an edit, and returns the item as later reads show it.
func (i *item) edit(ctx context.Context, values, body any, etag string) (*answered, error) {
	r, err := i.kind.request(i.kind.update, values, body)
	if err != nil {
		return nil, err
	}
	if i.kind.update.IfMatch && etag != "" {
		r.Header.Set("If-Match", etag)
	}
	return i.api.send(ctx, r)
}

func (i *item) view(ctx context.Context, values any) (*answered, error) {
	r, err := i.kind.request(i.kind.get, values, nil)
	if err != nil {
		return nil, err
	}
	return i.api.send(ctx, r)
}

// keep stores an answer in the state.
func (i *item) keep(ctx context.Context, raw *tftypes.Value, p private, prior any, answer *answered, d *diag.Diagnostics) {
	values := decode(i.kind.Attributes, prior, answer.item)
	for _, a := range i.kind.Attributes {
		if a.inPath && a.Required {
			values[a.Name] = member(prior, a.Name)
		}
	}
	if i.kind.installs {
		keepOnce(i.kind, values, prior)
	}
	if next := untree(raw.Type(), values, d); !d.HasError() {
		*raw = next
	}
	setPrivate(ctx, p, etagKey, answer.etag, d)
}

// Delete deletes the item. One that is gone already is no failure.
func (i *item) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	k, d := i.kind, &resp.Diagnostics
	state := tree(req.State.Raw, d)
	if !isConfigured(i.api, d) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, i.api.timeout)
	defer cancel()
	if k.isAdopted() {
		i.reset(ctx, state, wasSet(ctx, req.Private), d)
		return
	}
	if k.release && slices.ContainsFunc(setNames(ctx, req.Private), func(name string) bool { return strings.HasPrefix(name, "owner.") }) {
		for _, body := range []map[string]any{{"owner": nil}, {"status": "available"}} { // the release begins a quarantine
			if _, err := i.edit(ctx, state, body, ""); err != nil && !errors.Is(err, client.ErrNotFound) {
				k.report(d, "release", err)
				return
			}
		}
	}
	if k.installs {
		if err := i.cancelWaiting(ctx, state); err != nil && !errors.Is(err, client.ErrNotFound) {
			k.report(d, "cancel", err)
			return
		}
	}
	r, err := k.request(k.delete, state, nil)
	if err == nil {
		err = i.discard(ctx, r)
	}
	if err != nil && !errors.Is(err, client.ErrNotFound) {
		k.report(d, "delete", err)
	}
}

// discard sends a request whose answer says nothing new.
func (i *item) discard(ctx context.Context, r *client.Request) error {
	response, err := i.api.client.Do(ctx, r)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// reset sets the members that the configuration had to the value that the kind names, of an item that cannot be deleted.
func (i *item) reset(ctx context.Context, state any, wasSet map[string]bool, d *diag.Diagnostics) {
	if i.kind.spec.reset == "" {
		return
	}
	var value any
	if i.kind.spec.reset == "false" {
		value = false
	}
	body := map[string]any{}
	leaves(i.kind.Attributes, "", func(name string, a *Attribute) {
		if a.api != "" && wasSet[name] {
			operations.Put(body, a.api, value)
		}
	})
	if len(body) == 0 {
		return
	}
	if _, err := i.edit(ctx, state, body, ""); err != nil && !errors.Is(err, client.ErrNotFound) {
		i.kind.report(d, "reset", err)
	}
}

// ImportState reads ids: of a value of a field 3/17, for example.
func (i *item) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	parts := strings.Split(req.ID, "/")
	if len(parts) != len(i.kind.path) {
		resp.Diagnostics.AddError("Invalid id", fmt.Sprintf("got %q, want %s", req.ID, strings.Join(i.kind.pathNames(), "/")))
		return
	}
	for n, p := range i.kind.path {
		id, err := strconv.ParseInt(parts[n], 10, 64)
		if err != nil {
			resp.Diagnostics.AddError("Invalid id", fmt.Sprintf("%s %q is not a number", p.name, parts[n]))
			return
		}
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root(p.name), id)...)
	}
}

// isConfigured reports whether requests can be sent. If not, it adds an error.
func isConfigured(a *api, d *diag.Diagnostics) bool {
	if a == nil && !d.HasError() {
		d.AddError("The provider is not configured", "Its url or key is not known yet.")
	}
	return !d.HasError()
}

func tree(v tftypes.Value, d *diag.Diagnostics) any {
	value, err := fromTerraform(v)
	if err != nil {
		d.AddError("Cannot read a value", err.Error())
	}
	return value
}

func untree(t tftypes.Type, value any, d *diag.Diagnostics) tftypes.Value {
	v, err := toTerraform(t, value)
	if err != nil {
		d.AddError("Cannot store the answer", err.Error())
	}
	return v
}

// withoutUnknown returns a tree with null in place of what is not known.
func withoutUnknown(value any) any {
	switch v := value.(type) {
	case unknown:
		return nil
	case map[string]any:
		all := map[string]any{}
		for name := range v {
			all[name] = withoutUnknown(v[name])
		}
		return all
	default:
		return v
	}
}
