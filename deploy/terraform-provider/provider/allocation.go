package provider

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/ironplane/ironplane/pkg/client"
)

// allocation is the resource of free entities that the API chooses. The entities are not its own: they go back to the group.
type allocation struct{ api *api }

// allocated are the values of an allocation.
type allocated struct {
	GroupID    types.Int64  `tfsdk:"group_id"`
	Number     types.Int64  `tfsdk:"number"`
	Prefix     types.Int64  `tfsdk:"prefix"`
	Family     types.String `tfsdk:"family"`
	ClientID   types.Int64  `tfsdk:"client_id"`
	ServerID   types.Int64  `tfsdk:"server_id"`
	ServerName types.String `tfsdk:"server_name"`
	EntityIDs  types.List   `tfsdk:"entity_ids"`
	Addresses  types.List   `tfsdk:"addresses"`
}

func (a *allocation) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_allocation"
}

func (a *allocation) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	replaces := []planmodifier.Int64{int64planmodifier.RequiresReplace()}
	resp.Schema = schema.Schema{
		MarkdownDescription: "Allocates the lowest free IP entities of a group to a client. The deletion releases them. " +
			"A higher `number` adds entities, and a lower one releases the last ones; the others stay.\n\n" +
			"The id of an import lists the ids of the entities, such as `3,4`.",
		Attributes: map[string]schema.Attribute{
			"group_id": schema.Int64Attribute{Required: true, PlanModifiers: replaces, MarkdownDescription: "The IP group's id."},
			"number":   schema.Int64Attribute{Optional: true, MarkdownDescription: "The number of entities. The default is 1."},
			"prefix": schema.Int64Attribute{
				Optional: true, PlanModifiers: replaces,
				MarkdownDescription: "Instead of `number`: allocates all addresses of a prefix of this length.",
			},
			"family": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString("v4"),
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()}, Validators: []validator.String{oneOf{"v4", "v6"}},
				MarkdownDescription: "The address family, `v4` or `v6`. The default is `v4`.",
			},
			"client_id":   schema.Int64Attribute{Required: true, PlanModifiers: replaces, MarkdownDescription: "The client's id."},
			"server_id":   schema.Int64Attribute{Optional: true, MarkdownDescription: "The id of the server that uses the entities."},
			"server_name": schema.StringAttribute{Optional: true, MarkdownDescription: "The name of the server with `server_id`."},
			"entity_ids": schema.ListAttribute{
				Computed: true, ElementType: types.Int64Type, MarkdownDescription: "The ids of the entities, in the order of their allocation.",
			},
			"addresses": schema.ListAttribute{
				Computed: true, ElementType: types.StringType, MarkdownDescription: "The address, range or prefix of each entity.",
			},
		},
	}
}

func (a *allocation) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	a.api, _ = req.ProviderData.(*api)
}

// ValidateConfig refuses what the API would take for something else.
func (a *allocation) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var config allocated
	if resp.Diagnostics.Append(req.Config.Get(ctx, &config)...); resp.Diagnostics.HasError() {
		return
	}
	if !config.ServerName.IsNull() && config.ServerID.IsNull() {
		resp.Diagnostics.AddAttributeError(path.Root("server_name"), "Invalid server", "Set server_id, too.")
	}
	switch {
	case config.Number.IsNull(), config.Number.IsUnknown():
	case config.Number.ValueInt64() < 1:
		resp.Diagnostics.AddAttributeError(path.Root("number"), "Invalid number", "number must be at least 1.")
	case !config.Prefix.IsNull():
		resp.Diagnostics.AddAttributeError(path.Root("number"), "Invalid number", "Set either number or prefix.")
	}
}

// ModifyPlan plans to replace entities that are the client's no longer, and to keep the others.
func (a *allocation) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() || req.State.Raw.IsNull() {
		return
	}
	var plan, state allocated
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	plan.EntityIDs, plan.Addresses = state.EntityIDs, state.Addresses
	if plan.missing(len(state.EntityIDs.Elements())) != 0 {
		plan.EntityIDs, plan.Addresses = types.ListUnknown(types.Int64Type), types.ListUnknown(types.StringType)
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, plan)...)
}

// missing returns how many entities there should be beside those that there are. It is negative if there are too many.
func (v *allocated) missing(present int) int {
	if !v.Prefix.IsNull() {
		return 0
	}
	return int(max(v.Number.ValueInt64(), 1)) - present
}

func (a *allocation) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	d := &resp.Diagnostics
	var plan allocated
	if d.Append(req.Plan.Get(ctx, &plan)...); d.HasError() || !isConfigured(a.api, d) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, a.api.timeout)
	defer cancel()
	entities, err := a.allocate(ctx, &plan, plan.missing(0), resp.Private, d)
	if err == nil || errors.Is(err, client.ErrUnknownOutcome) { // otherwise nothing is allocated
		plan.set(entities)
		d.Append(resp.State.Set(ctx, plan)...)
	}
	if err != nil {
		reportAllocation(d, "create", err)
	}
}

// allocate allocates a number of entities, or those of the prefix. It stores a request whose outcome is not known.
func (a *allocation) allocate(ctx context.Context, v *allocated, number int, p private, d *diag.Diagnostics) ([]client.Entity, error) {
	body := client.GroupAllocateEntities{
		Count: int64(number), Prefix: v.Prefix.ValueInt64(), Family: v.Family.ValueString(),
		Owner: client.GroupAllocateEntitiesOwner{ID: v.ClientID.ValueInt64()},
	}
	if !v.ServerID.IsNull() {
		body.Owner.Server = &client.GroupAllocateEntitiesOwnerServer{ID: v.ServerID.ValueInt64(), Name: v.ServerName.ValueString()}
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode the allocation: %w", err)
	}
	attempt := pending{rand.Text(), text, time.Now().UTC()}
	entities, err := a.api.client.Groups.AllocateEntities(ctx, v.GroupID.ValueInt64(), body, client.IdempotencyKey(attempt.Key))
	if errors.Is(err, client.ErrUnknownOutcome) {
		setPrivate(ctx, p, pendingKey, attempt, d)
	}
	return entities, err
}

// Read looks which entities are still the client's.
func (a *allocation) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	d := &resp.Diagnostics
	var state allocated
	if d.Append(req.State.Get(ctx, &state)...); d.HasError() || !isConfigured(a.api, d) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, a.api.timeout)
	defer cancel()
	ids := state.ids(ctx, d)
	var p pending
	if getPrivate(ctx, req.Private, pendingKey, &p) {
		resumed, err := a.resume(ctx, &state, p, d)
		if err != nil {
			reportAllocation(d, "read", err)
			return
		}
		ids = append(ids, resumed...)
		d.Append(resp.Private.SetKey(ctx, pendingKey, nil)...)
	}
	entities, err := a.view(ctx, &state, ids)
	switch {
	case err != nil:
		reportAllocation(d, "read", err)
	case len(entities) == 0:
		resp.State.RemoveResource(ctx)
	default:
		state.set(entities)
		d.Append(resp.State.Set(ctx, state)...)
	}
}

// resume ends an allocation whose outcome is not known: the API answers as it did, or allocates now. It returns the ids.
func (a *allocation) resume(ctx context.Context, v *allocated, p pending, d *diag.Diagnostics) (ids []int64, err error) {
	if time.Since(p.At) > pendingFor {
		d.AddWarning("The outcome of an allocation is not known", fmt.Sprintf("An allocation for client %d got no answer at %s, and it is "+
			"too late to send it again. Release the entities that the client has too many.", v.ClientID.ValueInt64(), p.At.Format(time.RFC3339)))
		return nil, nil
	}
	var body client.GroupAllocateEntities
	if err := json.Unmarshal(p.Body, &body); err != nil {
		return nil, fmt.Errorf("decode the allocation: %w", err)
	}
	entities, err := a.api.client.Groups.AllocateEntities(ctx, v.GroupID.ValueInt64(), body, client.IdempotencyKey(p.Key))
	if errors.Is(err, client.ErrInvalid) || errors.Is(err, client.ErrConflict) || errors.Is(err, client.ErrNotFound) {
		return nil, nil // it was not carried out, and is refused now
	}
	for _, e := range entities {
		ids = append(ids, e.ID)
	}
	return ids, err
}

// view returns the entities that are the client's. An import does not know the client: it is the one that the first entity has.
func (a *allocation) view(ctx context.Context, v *allocated, ids []int64) (entities []client.Entity, err error) {
	for _, id := range ids {
		e, err := a.api.client.Entities.Get(ctx, id)
		if errors.Is(err, client.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if v.ClientID.IsNull() && e.Owner != nil {
			v.ClientID, v.GroupID = types.Int64Value(e.Owner.ID), types.Int64Value(e.Group.ID)
		}
		if v.owns(e) {
			entities = append(entities, *e)
		}
	}
	return entities, nil
}

// owns reports whether an entity is the client's, also if the client has given it to another one.
func (v *allocated) owns(e *client.Entity) bool {
	id := v.ClientID.ValueInt64()
	return e.Owner != nil && (e.Owner.ID == id || e.Owner.Via != nil && e.Owner.Via.ID == id)
}

// Update adds or releases entities, and changes their server.
func (a *allocation) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	d := &resp.Diagnostics
	var plan, state allocated
	d.Append(req.Plan.Get(ctx, &plan)...)
	if d.Append(req.State.Get(ctx, &state)...); d.HasError() || !isConfigured(a.api, d) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, a.api.timeout)
	defer cancel()
	ids := state.ids(ctx, d)
	err := a.changeServer(ctx, &plan, &state, ids)
	if missing := plan.missing(len(ids)); err == nil && missing > 0 {
		var added []client.Entity
		added, err = a.allocate(ctx, &plan, missing, resp.Private, d)
		for _, e := range added {
			ids = append(ids, e.ID)
		}
	} else if err == nil && missing < 0 {
		err = a.release(ctx, &plan, ids[len(ids)+missing:])
	}
	entities, viewErr := a.view(ctx, &plan, ids)
	if viewErr == nil {
		plan.set(entities)
		d.Append(resp.State.Set(ctx, plan)...)
	}
	if err := errors.Join(err, viewErr); err != nil {
		reportAllocation(d, "edit", err)
	}
}

// changeServer sets the server of the entities, if the plan changes it.
func (a *allocation) changeServer(ctx context.Context, plan, state *allocated, ids []int64) error {
	if plan.ServerID.Equal(state.ServerID) && plan.ServerName.Equal(state.ServerName) {
		return nil
	}
	server := client.Null[client.EntityUpdateOwnerServer]()
	if !plan.ServerID.IsNull() {
		name := client.Null[string]()
		if !plan.ServerName.IsNull() {
			name = client.Set(plan.ServerName.ValueString())
		}
		server = client.Set(client.EntityUpdateOwnerServer{ID: client.Set(plan.ServerID.ValueInt64()), Name: name})
	}
	owner := client.Set(client.EntityUpdateOwner{ID: client.Set(plan.ClientID.ValueInt64()), Server: server})
	for some := range slices.Chunk(ids, 100) {
		if _, err := a.api.client.Entities.UpdateMany(ctx, some, client.EntityUpdate{Owner: owner}); err != nil {
			return err
		}
	}
	return nil
}

func (a *allocation) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	d := &resp.Diagnostics
	var state allocated
	if d.Append(req.State.Get(ctx, &state)...); d.HasError() || !isConfigured(a.api, d) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, a.api.timeout)
	defer cancel()
	if err := a.release(ctx, &state, state.ids(ctx, d)); err != nil {
		reportAllocation(d, "release", err)
	}
}

// release releases the entities that are the client's, and no others. One that a sub client has takes two releases.
func (a *allocation) release(ctx context.Context, v *allocated, ids []int64) error {
	for _, id := range ids {
		for {
			e, err := a.api.client.Entities.Get(ctx, id)
			if errors.Is(err, client.ErrNotFound) || err == nil && !v.owns(e) {
				break
			}
			if err != nil {
				return err
			}
			if _, err = a.api.client.Entities.Release(ctx, id, client.IfMatch(e.ETag)); err != nil && !errors.Is(err, client.ErrStale) {
				return fmt.Errorf("IP entity %d: %w", id, err)
			}
		}
	}
	return nil
}

// ImportState reads the ids of entities, such as 3,4.
func (a *allocation) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	var ids []int64
	for text := range strings.SplitSeq(req.ID, ",") {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			resp.Diagnostics.AddError("Invalid id", fmt.Sprintf("got %q, want the ids of entities, such as 3,4", req.ID))
			return
		}
		ids = append(ids, id)
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("entity_ids"), ids)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("number"), len(ids))...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("family"), "v4")...)
}

func (v *allocated) ids(ctx context.Context, d *diag.Diagnostics) (ids []int64) {
	d.Append(v.EntityIDs.ElementsAs(ctx, &ids, false)...)
	return ids
}

// set takes over the entities, and a server that is not the configured one.
func (v *allocated) set(entities []client.Entity) {
	ids, addresses := make([]int64, len(entities)), make([]string, len(entities))
	for i, e := range entities {
		ids[i], addresses[i] = e.ID, e.FullIP
		var server client.OwnerRef
		if e.Owner != nil && e.Owner.Server != nil {
			server = *e.Owner.Server
		}
		if e.Owner != nil && e.Owner.Via != nil {
			continue // the server is the sub client's
		}
		if server.ID != v.ServerID.ValueInt64() || server.Name != v.ServerName.ValueString() {
			v.ServerID, v.ServerName = types.Int64PointerValue(orNil(server.ID)), types.StringPointerValue(orNil(server.Name))
		}
	}
	v.EntityIDs, _ = types.ListValueFrom(context.Background(), types.Int64Type, ids)        // of integers there are no errors
	v.Addresses, _ = types.ListValueFrom(context.Background(), types.StringType, addresses) // nor of texts
}

func orNil[T comparable](value T) *T {
	if value == *new(T) {
		return nil
	}
	return &value
}

// reportAllocation adds an error of the API to the diagnostics, at the attributes that it names.
func reportAllocation(d *diag.Diagnostics, action string, err error) {
	names := map[string]string{
		"/count": "number", "/prefix": "prefix", "/family": "family", "/owner/id": "client_id", "/owner/server/id": "server_id",
	}
	report(d, "allocation", action, err, func(pointer string) (path.Path, bool) {
		name, ok := names[pointer]
		return path.Root(name), ok
	})
}
