package main

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/services/pxe/siteagent/agenttest"

	"github.com/ironplane/ironplane/deploy/internal/datastores"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/receiver"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/install"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/system/webhook"
)

// TestInstallingWhilePXEIsKilled kills the pxe service repeatedly while a machine is installed. The service records
// each request of the machine once and in order, and the webhook receives each event once.
func TestInstallingWhilePXEIsKilled(t *testing.T) {
	t.Parallel()
	requireProc(t)
	f, c := startFleet(t, datastores.Config{Data: t.TempDir()}, "IRONPLANE_ALLOWED_NETWORKS=127.0.0.0/8")
	const key, mac, address = "the key of the agent in this test", "52:54:00:00:00:01", "10.1.0.2"
	agent := agenttest.NewBootAgent(t, key)
	at, err := url.Parse(agent.URL)
	if err != nil {
		t.Fatal(err)
	}
	create := func(path string, body map[string]any) int64 { return c.Do("POST", path, body).Want(200).ID() }
	dhcp := create("/pxe/dhcp", map[string]any{"name": "Berlin", "host": at.Hostname(), "port": at.Port(), "api_key": key})
	group := create("/group", map[string]any{"name": "Berlin", "pxe_dhcp_server": dhcp})
	profile := create(
		"/pxe/profile",
		map[string]any{
			"name":        "mine",
			"boot_script": create("/pxe/boot-script", map[string]any{"name": "boot", "body": "#!ipxe\nkernel {{.URL.Preseed}}\n"}),
			"preseed":     create("/pxe/preseed", map[string]any{"name": "seed", "body": "of {{.Host.Name}}"}),
		},
	)
	testkit.AwaitAgents(t, c, fmt.Sprint("/pxe/dhcp/", dhcp))
	entity := create("/entity", map[string]any{"group": group, "address": address, "subnet_mask": "255.255.255.0", "gateway": "10.1.0.1"})
	billing := receiver.Start(t, nil)
	billing.Trust(
		testkit.Decode[webhook.Webhook](
			c.Do("POST", "/webhook", map[string]any{"url": billing.URL, "types": []string{"pxe.install.*"}}).Want(200),
		).Secret,
	)
	path := fmt.Sprint(
		"/pxe/install/",
		create("/pxe/install", map[string]any{"profile": profile, "host": map[string]any{"macs": []string{mac}, "entity": entity}}),
	)

	view := func() install.Install {
		t.Helper()
		response, _ := sendUntilAnswered(t, c, "GET", path, nil)
		return testkit.Decode[install.Install](response.Want(http.StatusOK))
	}
	testkit.Eventually(t, "the agent knows the machine", func() bool { return len(agent.Agent.Machines().Revisions()) == 1 })
	token := regexp.MustCompile(`/i/([A-Z0-9]+)/preseed`).FindStringSubmatch(agent.Boot(mac, address))[1]
	readFiles := func(times int) {
		for n := range times { // the agent reports repeated requests only once
			agent.MustRequest("GET", "/i/"+token+[]string{"/preseed", "/after"}[n%2], address, "")
		}
	}
	const kills = 3
	for n := range kills {
		before := len(view().Requests)
		readFiles(8)
		testkit.Eventually(t, "some requests are recorded", func() bool { return len(view().Requests) > before })
		kill(t, f.processes[pxe.Name])
		agent.PostEvent(token, "progress", address, fmt.Sprintf("step=of+%d&progress=%d", n, 10*(n+1)))
		readFiles(8)
		if n == kills-1 {
			agent.PostEvent(token, "done", address, "")
		}
		if err := f.startService(t.Context(), pxe.Name); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "the machine is installed", func() bool { return view().Status == install.Installed })
	is := view()
	line := func(kind, got string) string { return kind + ": " + got }
	var got, reported []string
	for _, r := range is.Requests {
		got = append(got, line(r.Kind, r.Response))
	}
	for _, r := range agent.Reports() {
		reported = append(reported, line(r.Event, r.Response))
	}
	if slices.Reverse(
		reported,
	); !slices.Equal(got, reported) || is.Error != nil || *is.Step != fmt.Sprint("of ", kills-1) || len(reported) < 16*kills ||
		reported[0] != line(siteagent.EventDone, "noted") {
		t.Errorf(
			"got %d requests:\n%s\nand %+v\nwant at least %d, the step %q, no error and these %d requests:\n%s",
			len(got),
			strings.Join(got, "\n"),
			is,
			16*kills,
			fmt.Sprint("of ", kills-1),
			len(reported),
			strings.Join(reported, "\n"),
		)
	}
	testkit.Eventually(t, "billing has received the last event", func() bool {
		return slices.ContainsFunc(
			billing.All(),
			func(r receiver.Received) bool { return r.Accepted && r.Event(t).Type == "pxe.install.installed" },
		)
	})
	var events []string
	known := map[string]bool{} // events are sent again if the response to the first attempt was lost
	for _, r := range billing.All() {
		if !known[r.ID] {
			events = append(events, r.Event(t).Type)
		}
		known[r.ID] = true
	}
	if want := []string{
		"pxe.install.created",
		"pxe.install.booted",
		"pxe.install.began",
		"pxe.install.installed",
	}; !slices.Equal(
		events,
		want,
	) {
		t.Errorf("billing: got the events %q, want %q", events, want)
	}
}
