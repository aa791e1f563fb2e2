package command

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ironplane/ironplane/deploy/cli/output"
	"github.com/ironplane/ironplane/pkg/client"
)

// custom is what an operation's command has beyond the API document.
type custom struct {
	aliases    []string
	positional []string // members of the body that are arguments, behind those of the route
	columns    []string // the columns of a table
	example    string
	canFollow  bool
}

// nounAliases are shorter names, and the plurals that people type.
var nounAliases = map[string][]string{
	"entity":             {"entities", "ip"},
	"group":              {"groups"},
	"client":             {"clients", "customer"},
	"admin":              {"admins"},
	"api-key":            {"api-keys", "key"},
	"install":            {"installs"},
	"profile":            {"profiles"},
	"iso":                {"isos"},
	"job":                {"jobs"},
	"log":                {"logs"},
	"dhcp-server":        {"dhcp-servers", "dhcp"},
	"file-server":        {"file-servers"},
	"webhook":            {"webhooks"},
	"integration":        {"integrations"},
	"discovered-machine": {"discovery", "discovered-machines"},
	"email-message":      {"email-messages", "mail"},
}

var verbAliases = map[string][]string{
	"list": {"ls"}, "get": {"describe", "view"}, "delete": {"rm"}, "update": {"edit"},
}

// customs are the commands that people use most.
var customs = map[string]custom{
	"listIPEntities": {
		columns: []string{"id", "full_ip", "nickname", "status", "owner", "owner.server.name", "vlan", "group"},
		example: "  ironplane entity list --group \"Frankfurt 1\" --status available\n  ironplane entity list --all -o csv > entities.csv",
	},
	"createIPEntity": {
		positional: []string{"full_ip"},
		example: "  ironplane entity create 192.0.2.0/28 --group \"Frankfurt 1\" --v4-gateway 192.0.2.1 --vlan 120\n" +
			"  ironplane entity create --csv entities.csv --dry-run",
	},
	"updateIPEntity": {
		example: "  ironplane entity update 192.0.2.0/28 --nickname \"rack 12\" --owner ben@example.com\n" +
			"  ironplane entity update \"rack 12\" --clear owner",
	},
	"releaseIPEntity": {example: "  ironplane entity release \"rack 12\""},
	"deleteIPEntity":  {example: "  ironplane entity delete \"rack 12\" --dry-run"},
	"listIPGroups": {
		columns: []string{"id", "name", "entities.count", "servers.count", "reserved", "billing_id"},
	},
	"createIPGroup": {positional: []string{"name"}, example: "  ironplane group create \"Frankfurt 1\""},
	"allocateIPEntities": {
		columns: []string{"id", "full_ip", "gateway", "subnet_mask", "vlan", "owner"},
		example: "  ironplane group allocate \"Frankfurt 1\" --count 2 --owner ben@example.com --jq '.[].full_ip'",
	},
	"createIPEntities": {
		positional: []string{"prefix"},
		example:    "  ironplane group create-entities \"Frankfurt 1\" 198.51.100.0/24 --gateway 198.51.100.1 --subnet-mask 255.255.255.0",
	},
	"getIPGroupUtilization": {aliases: []string{"usage"}, example: "  ironplane group utilization \"Frankfurt 1\""},
	"listClients": {
		columns: []string{"id", "name", "email", "disabled", "billing.id", "created_at"},
	},
	"createClient":    {positional: []string{"email"}, example: "  ironplane client create ben@example.com --first Ben --last Miller"},
	"suspendClient":   {example: "  ironplane client suspend ben@example.com"},
	"unsuspendClient": {example: "  ironplane client unsuspend ben@example.com"},
	"createAPIKey": {
		positional: []string{"name"},
		example:    "  ironplane api-key create billing --allowed-cidrs 192.0.2.0/24 --jq .key > key",
	},
	"createAdmin": {
		positional: []string{"email"},
		example:    "  ironplane admin create anna@example.com --password -",
	},
	"listInstalls": {
		columns: []string{"id", "name", "status", "progress", "step", "profile", "client", "created_at"},
	},
	"createInstall": {
		example: "  ironplane install create --profile \"Debian 13\" --host-entity \"rack 12\" --host-macs 52:54:00:12:34:56 " +
			"--ssh-keys @id_ed25519.pub --wait",
	},
	"reinstallMachine": {example: "  ironplane machine reinstall --entity \"rack 12\" --profile \"Debian 13\" --wait"},
	"createISO":        {example: "  ironplane iso create --url https://example.com/debian.iso --wait"},
	"listJobs":         {columns: []string{"id", "kind", "state", "attempt", "created_at", "error"}},
	"listLogItems": {
		columns:   []string{"created_at", "user", "desc", "ip"},
		example:   "  ironplane log list --since -24h\n  ironplane log list --follow",
		canFollow: true,
	},
}

const followInterval = 2 * time.Second

// followItems prints the newest items of a list, and then each new one, until the caller ends it.
func (c *call) followItems(ctx context.Context, api *client.Client, r *client.Request, print output.Options) error {
	if print.Format == "csv" || print.Format == "yaml" {
		return usage(fmt.Errorf("--follow prints a table or JSON"))
	}
	r.Query.Set("sort", "-id")
	last, perPage := int64(0), min(max(c.limit, 1), maxPerPage)
	for {
		r.Query.Set("per_page", fmt.Sprint(perPage))
		var items []json.RawMessage
		for item, err := range api.Items(ctx, r) {
			if err != nil {
				return err
			}
			id := rawID(item)
			if id <= last || last == 0 && len(items) == perPage {
				break
			}
			items = append(items, item)
		}
		slices.Reverse(items)
		for _, item := range items {
			last = max(last, rawID(item))
			if err := c.printLine(item, print); err != nil {
				return err
			}
		}
		select {
		case <-time.After(followInterval):
		case <-ctx.Done():
			return nil // the caller has seen enough
		}
	}
}

// printLine prints an item on one line.
func (c *call) printLine(item json.RawMessage, print output.Options) error {
	if print.Query != "" || print.Format == "json" {
		return print.Line(c.program.Out, item)
	}
	return print.Row(c.program.Out, item)
}

func rawID(item json.RawMessage) int64 {
	var of struct {
		ID int64 `json:"id"`
	}
	_ = json.Unmarshal(item, &of) // all items have an id
	return of.ID
}
