package provider

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/client/operations"
)

// installMembers are the members of an install that the API does not know of.
var installMembers = []string{"triggers", "force", "wait", "timeouts"}

// defaultInstallTimeout is how long the creation of an install waits for the machine.
const defaultInstallTimeout = time.Hour

// keepOnce keeps the members of an install that the configuration sets: they say what the next install gets, not what the last got.
func keepOnce(k *Kind, values map[string]any, prior any) {
	for _, name := range installMembers {
		values[name] = member(prior, name)
	}
	leaves(k.Attributes, "", func(name string, a *Attribute) {
		value := at(prior, name)
		if _, isUnknown := value.(unknown); a.api != "" && value != nil && !isUnknown {
			operations.Put(values, name, value)
		}
	})
}

// await waits until a machine is installed. An install that fails is an error. One that takes longer than the timeout goes on, and
// is no error: Terraform would replace the install, and erase the machine, at the next apply.
func (i *item) await(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	d := &resp.Diagnostics
	config, state := tree(req.Config.Raw, d), tree(resp.State.Raw, d)
	if d.HasError() || member(config, "wait") == false {
		return
	}
	timeout := defaultInstallTimeout
	if text, ok := at(config, "timeouts.create").(string); ok {
		timeout, _ = parseTimeout(text) // duration has checked it
	}
	waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	id, _ := member(state, "id").(int64)
	_, err := i.api.client.Installs.Wait(waiting, id, nil)
	reading, cancelReading := context.WithTimeout(context.WithoutCancel(ctx), i.api.timeout)
	defer cancelReading()
	answer, viewErr := i.view(reading, state)
	if viewErr == nil {
		i.keep(reading, &resp.State.Raw, resp.Private, tree(req.Plan.Raw, d), answer, d)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		d.AddWarning("The machine is not installed yet", fmt.Sprintf("Install %d goes on, but took longer than %s.", id, timeout))
	case err != nil:
		if ended, ok := errors.AsType[*client.EndedError](err); ok {
			d.AddError("The machine was not installed", ended.Error())
			return
		}
		i.kind.report(d, "wait for", err)
	}
}

// cancelWaiting cancels an install that no machine has begun, so that it can be deleted.
func (i *item) cancelWaiting(ctx context.Context, state any) error {
	id, _ := member(state, "id").(int64)
	install, err := i.api.client.Installs.Get(ctx, id)
	if err == nil && install.Status == "waiting" {
		_, err = i.api.client.Installs.Cancel(ctx, id)
	}
	return err
}
