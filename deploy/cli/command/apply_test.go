package command

import (
	"strings"
	"testing"
)

const site = `
- kind: group
  name: Applied 1
- {kind: client, email: applied@example.com, first: Ann, last: Applied}
- kind: entity
  full_ip: 10.88.0.0/28
  group: Applied 1
  owner: applied@example.com
  vlan: 120
  v4: {gateway: 10.88.0.1}
- kind: port-speed
  name: applied 1G
  speed: 1000
`

// TestApply creates the items of a file, then edits what differs, and then has nothing to do.
func TestApply(t *testing.T) {
	t.Parallel()
	s := start(t)
	name := file(t, site)
	s.wants("ACTION  KIND        NAME\ncreate  group       Applied 1\ncreate  client      applied@example.com\n"+
		"create  entity      10.88.0.0/28\ncreate  port-speed  applied 1G\n", "apply", "-f", name, "--dry-run")
	s.run("group", "get", "Applied 1").fails(5)
	s.run("apply", "-f", name).fails(2, "use --yes")
	s.wants("4 created, 0 updated, 0 unchanged\n", "apply", "-f", name, "--yes")
	s.wants("120\napplied@example.com\n", "entity", "list", "--group", "Applied 1", "--jq", ".[] | .vlan, \"applied@example.com\"")
	s.wants("Ann Applied\n", "entity", "list", "--group", "Applied 1", "--jq", ".[].owner.name")
	s.wants("0 created, 0 updated, 4 unchanged\n", "apply", "-f", name, "--yes")
	s.wants("[]\n", "apply", "-f", name, "--dry-run", "-o", "json")

	changed := file(t, strings.NewReplacer("vlan: 120", "vlan: 121", "speed: 1000", "speed: 1001").Replace(site))
	s.wants("entity vlan=121\nport-speed speed=1001\n", "apply", "-f", changed, "--dry-run", "--jq", `.[] | "\(.kind) \(.changes)"`)
	s.wants("0 created, 2 updated, 2 unchanged\n", "apply", "-f", changed, "--yes")
	s.wants("121\n", "entity", "list", "--group", "Applied 1", "--jq", ".[].vlan")
	s.wants("0 created, 0 updated, 4 unchanged\n", "apply", "-f", changed, "--yes")

	// An item that was deleted since is created again, although the API has seen the same request.
	s.ok("port-speed", "delete", "applied 1G")
	s.wants("1 created, 1 updated, 2 unchanged\n", "apply", "-f", name, "--yes")
	s.wants("1000\n", "port-speed", "get", "applied 1G", "--jq", ".speed")
}

// TestApplyAddresses applies addresses in other spellings than the API's twice: the second time, nothing differs.
func TestApplyAddresses(t *testing.T) {
	t.Parallel()
	s := start(t)
	name := file(t, `
- {kind: group, name: Spelled 1}
- {kind: client, email: spelled@example.com, first: Ann, last: Spelled}
- {kind: entity, full_ip: 10.89.0.1/32, group: Spelled 1, owner: {id: spelled@example.com, server: {id: 4, name: web-web}}}
- {kind: entity, full_ip: 10.89.0.2-10.89.0.2, group: Spelled 1}
- {kind: entity, full_ip: "2001:DB8:89:0::1", group: Spelled 1}
- {kind: entity, full_ip: "2001:DB8:8900::/64", group: Spelled 1, v6: {gateway: "2001:DB8:8900::FFFF"}}
`)
	s.wants("6 created, 0 updated, 0 unchanged\n", "apply", "-f", name, "--yes")
	s.wants("web-web\n", "entity", "list", "--q", "web-web", "--jq", ".[].owner.server.name")
	s.wants("0 created, 0 updated, 6 unchanged\n", "apply", "-f", name, "--yes")
	s.wants("10.89.0.1\n10.89.0.2\n2001:db8:89::1\n2001:db8:8900::/64\n", "entity", "list", "--group", "Spelled 1", "--jq", ".[].full_ip")
	twice := file(t, "- {kind: entity, full_ip: 10.0.0.1, group: x}\n- {kind: entity, full_ip: 10.0.0.1/32, group: x}")
	s.run("apply", "-f", twice, "--yes").fails(5, `no group has the name "x"`) // an address exists once in each group
}

// TestApplyRefuses says where a file is invalid, and what was done before.
func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	s := start(t)
	for text, want := range map[string]string{
		"kind: group":                                                           "not a list",
		"- kind: planet\n  name: x":                                             "line 1: kind must be one of admin,",
		"- kind: group\n  name: x\n  colour: red":                               "line 1: the group has no member colour",
		"- {kind: group, reserved: true}":                                       "line 1: the group has no name",
		"- {kind: group, name: x}\n- {kind: group, name: X}":                    "line 2: the group X is in line 1 already",
		"- {kind: entity, full_ip: 10.0.0.1, group: nowhere at all, vlan: 500}": `no group has the name "nowhere at all"`,
	} {
		code := 2
		if strings.Contains(want, "nowhere") {
			code = 5
		}
		s.run("apply", "-f", file(t, text), "--yes").fails(code, want)
	}
	refused := file(t, "- {kind: port-speed, name: refused 1, speed: 5}\n- {kind: port-speed, name: refused 2, speed: 0}\n")
	s.run("apply", "-f", refused, "--yes").
		fails(8, "Stopped at line 2, port-speed refused 2", "Before that: 1 created", "/speed: must be from 1")
}
