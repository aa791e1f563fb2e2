package provider

// spec says of a kind of item what the table of operations does not say.
type spec struct {
	noun        string            // the noun of its operations
	name        string            // the name in Terraform, unless it is the noun
	get, update string            // the operations that view and edit it, unless they are the noun's
	doc         string            // what readers should know beyond the operations
	dataOnly    bool              // whether Terraform does not create, edit or delete it
	omit        string            // members that are left out
	paths       map[string]string // names for parameters of the path that say too little
	from        map[string]string // where the answer has a member of the body under another name
	shownOnce   string            // a secret that only the answer to the creation has
	reset       string            // false, null: what a deletion sets the members to, of an item that cannot be deleted
	resend      map[string]string // secrets that an edit of the member or object beside them has to send again
	release     bool              // whether a deletion first ends the assignment that the configuration has made
	installs    bool              // whether its members say what happens once: a machine is installed
}

// specs are the kinds of items with an operation that views one. The rest of what this provider knows of them is in the table of
// operations: their members, which of these are required, secret or a choice, and which can be edited or cleared.
var specs = []spec{
	{noun: "admin", omit: "current_password"},
	{
		noun: "admin", name: "admin_permissions", get: "getAdminPermissions", update: "updateAdminPermissions", reset: "false",
		doc: "The deletion takes the permissions away that the configuration names.",
	},
	{
		noun: "api-key", omit: "auth device email isWrapped password type username owner.name owner.type", shownOnce: "key",
		doc: "The value of `key` is in the state, and nowhere else.",
	},
	{noun: "api-key", name: "current_api_key", get: "getCurrentAPIKey", dataOnly: true, omit: "key"},
	{noun: "boot-script"},
	{
		noun: "client", omit: "current_password billing_id integration",
		from: map[string]string{"billing.integration": "integration", "verify.require": "verify.0.require"},
	},
	{noun: "computer-part"},
	{noun: "dhcp-server", resend: map[string]string{"http.api_key": "http"}},
	{noun: "discovered-machine", dataOnly: true},
	{noun: "driver", omit: "upload", doc: "`driver` is the file in base64, as `filebase64(\"net.zip\")` returns it."},
	{noun: "email-message", dataOnly: true},
	{noun: "email-template"},
	{noun: "entity", omit: "fields owner.name", release: true, doc: "The deletion releases an entity that the configuration has assigned."},
	{noun: "field"},
	{noun: "field-value"},
	{noun: "file-server", resend: map[string]string{"http.api_key": "http"}},
	{noun: "forwarding-gateway", resend: map[string]string{"api_key": "hostname"}},
	{noun: "forwarding-type", dataOnly: true},
	{noun: "granter-link", dataOnly: true, paths: map[string]string{"client_id": "grantee_id", "super_id": "link_id"}},
	{noun: "group", omit: "fields entitiesCount"},
	{noun: "group", name: "group_utilization", get: "getIPGroupUtilization", dataOnly: true},
	{noun: "identity-provider"},
	{noun: "install", omit: "requests reports", installs: true},
	{noun: "integration"},
	{
		noun: "integration", name: "integration_permissions", get: "getIntegrationPermissions", update: "updateIntegrationPermissions",
		reset: "false", doc: "The deletion takes the permissions away that the configuration names.",
	},
	{noun: "iso", omit: "upload"},
	{noun: "iso-edition", doc: "An edition exists as long as its ISO. The deletion leaves it as it is."},
	{noun: "log", name: "log_item", dataOnly: true},
	{noun: "package", dataOnly: true},
	{noun: "parent-link", dataOnly: true, paths: map[string]string{"client_id": "child_id", "sub_id": "link_id"}},
	{noun: "port-speed"},
	{noun: "preseed"},
	{noun: "profile", omit: "iso.name"},
	{noun: "session", dataOnly: true},
	{noun: "setting", reset: "null", doc: "The deletion restores the default."},
	{noun: "setting-group", dataOnly: true},
	{noun: "shell-script"},
	{
		noun: "sub-link", omit: "child", paths: map[string]string{"client_id": "parent_id"},
		from: map[string]string{"client_id": "child.id", "client_email": "child.email"},
	},
	{
		noun: "super-link", paths: map[string]string{"client_id": "granter_id"},
		from: map[string]string{"client_id": "grantee"},
	},
	{noun: "todo-item", dataOnly: true},
	{noun: "verify-method", doc: "The methods are fixed. The deletion leaves one as it is."},
	{noun: "webhook", shownOnce: "secret"},
	{noun: "webhook-delivery", dataOnly: true},
}

// called are the resources that call an operation which is not one of their kind's.
var called = map[string]string{
	"allocateIPEntities": "ironplane_allocation",
	"releaseIPEntity":    "ironplane_allocation",
	"cancelInstall":      "ironplane_install",
}
