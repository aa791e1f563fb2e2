package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
)

// ModifyPlan says what an apply changes. Members that the configuration leaves out stay as they are, as long as nothing else of the
// item changes: after a change, the API may answer with others.
func (i *item) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	k, d := i.kind, &resp.Diagnostics
	if req.Plan.Raw.IsNull() || req.State.Raw.IsNull() {
		return
	}
	config, state := tree(req.Config.Raw, d), tree(req.State.Raw, d)
	if d.HasError() {
		return
	}
	set := wasSet(ctx, req.Private)
	isChanged := false
	leaves(k.Attributes, "", func(name string, a *Attribute) {
		wanted, present := at(config, name), at(state, name)
		switch {
		case wanted == nil:
			isRemoved := a.isRemoved(wanted, present, set[name]) || a.Optional && !a.Computed && present != nil
			isChanged = isChanged || isRemoved
		case !a.alike(present, wanted):
			isChanged = true
			if !k.installs && !a.editable && (a.inPath || a.api != "") {
				resp.RequiresReplace = append(resp.RequiresReplace, pathOf(name))
			}
		}
	})
	plan, _ := plan(k.Attributes, config, state, isChanged && !k.installs).(map[string]any)
	if k.installs {
		k.planInstall(config, state, plan, isChanged, resp)
	}
	if next := untree(req.Plan.Raw.Type(), plan, d); !d.HasError() {
		resp.Plan.Raw = next
	}
}

// plan returns the values of the attributes after an apply.
func plan(attributes []*Attribute, config, state any, isChanged bool) any {
	all := map[string]any{}
	for _, a := range attributes {
		wanted, present := member(config, a.Name), member(state, a.Name)
		_, isUnknown := wanted.(unknown)
		switch {
		case isUnknown:
			all[a.Name] = wanted
		case a.Kind == "object" && wanted != nil:
			all[a.Name] = plan(a.Attributes, wanted, present, isChanged)
		case wanted != nil && present != nil && a.alike(present, wanted):
			all[a.Name] = present
		case wanted != nil:
			all[a.Name] = wanted
		case !a.Computed:
			all[a.Name] = nil
		case isChanged && !a.stable && !a.shownOnce:
			all[a.Name] = unknown{}
		default:
			all[a.Name] = present
		}
	}
	return all
}

// planInstall plans the members of an install that the API does not know of.
func (k *Kind) planInstall(config, state any, plan map[string]any, isChanged bool, resp *resource.ModifyPlanResponse) {
	for _, name := range installMembers {
		plan[name] = member(config, name)
	}
	if !same(member(config, "triggers"), member(state, "triggers")) {
		resp.RequiresReplace = append(resp.RequiresReplace, path.Root("triggers"))
	} else if isChanged {
		resp.Diagnostics.AddWarning(
			"The machine is not installed again",
			"It keeps what was installed. Change triggers to install it again, which erases its disks.",
		)
	}
}
