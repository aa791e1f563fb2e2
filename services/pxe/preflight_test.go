package pxe_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/neighbours"
	"github.com/ironplane/ironplane/services/pxe/install"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// preflightCase is a reason why an install cannot work, and how it goes away.
type preflightCase struct {
	name          string
	begin, mend   func()
	broken, whole string // the members of the body that are added, while it is refused and after
	want          []string
	says          string
}

// machineBody returns the body of an install of a new machine, whose IP entity belongs to a client (0: none).
func (b *bootSite) machineBody(owner int64, more string) string {
	b.Helper()
	b.macs++
	m := target{mac: fmt.Sprintf("52:54:00:00:00:%02x", b.macs), address: fmt.Sprintf("10.1.0.%d", b.macs+1), entity: int64(b.macs)}
	b.Network.SetMachine(neighbours.Machine{Entity: m.entity, Address: m.address, Gateway: "10.1.0.254",
		Group: b.group, GroupName: "Berlin", DHCPServer: b.dhcp, Owner: owner})
	return fmt.Sprintf(`{"profile": %d, "host": {"macs": [%q], "entity": %d}%s}`, b.profile, m.mac, m.entity, more)
}

// setDHCP makes the agent report what it offers, and waits until the service has read it.
func (b *bootSite) setDHCP(offer siteagent.DHCPHealth) {
	b.Helper()
	b.agent.DHCP.Store(&offer)
	b.waitFor("the agent's report has arrived", "SELECT dhcp = $1 FROM site_agent WHERE kind = 'pxe/dhcp'", &offer)
}

// waitFor waits until a query returns true.
func (b *bootSite) waitFor(condition, query string, args ...any) {
	b.Helper()
	testkit.Eventually(b.T, condition, func() (ok bool) {
		if err := b.DB.QueryRow(b.Context(), query, args...).Scan(&ok); err != nil {
			b.Fatal(err)
		}
		return ok
	})
}

// preflightCases returns all reasons.
func (b *bootSite) preflightCases() []preflightCase {
	const password = `, "password": "a long walk in the rain"`
	offer := *b.agent.DHCP.Load()
	remove := func(path string) preflightCase {
		return preflightCase{begin: func() { b.agent.RemoveFile(path) }, mend: func() { b.agent.WriteFile(path) }, broken: password}
	}
	reports := func(broken siteagent.DHCPHealth) preflightCase {
		return preflightCase{begin: func() { b.setDHCP(broken) }, mend: func() { b.setDHCP(offer) }, broken: password}
	}
	named := func(name string, c preflightCase, says string, want ...string) preflightCase {
		c.name, c.says, c.want = name, says, want
		return c
	}
	elsewhere := siteagent.DHCPHealth{Mode: siteagent.DHCPAuthoritative, TFTP: true,
		Networks: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}
	return []preflightCase{
		named("a file of the boot script", remove("linux"),
			fmt.Sprintf("needs linux, which file server %d (files) lacks", b.fileServer), "/profile", "file_missing"),
		named("the bootloader", remove(siteagent.BootloaderBIOS), "needs local/boot/undionly.kpxe", "/host/firmware", "no_bootloader"),
		named("no DHCP", reports(siteagent.DHCPHealth{}), "IRONPLANE_AGENT_DHCP", "/dhcp_server", "no_dhcp"),
		named("DHCP for another network", reports(elsewhere), "serves 198.51.100.0/24", "/dhcp_server", "no_dhcp"),
		named("no TFTP", reports(siteagent.DHCPHealth{Mode: siteagent.DHCPAuthoritative}),
			"IRONPLANE_AGENT_TFTP_LISTEN", "/host/firmware", "no_bootloader"),
		named("no password", preflightCase{whole: password}, "nobody could sign in", "/password", "no_login"),
		named("a failing agent", preflightCase{broken: password, begin: func() {
			b.agent.Agent.SetProblems([]string{"the disk is full: 3 MB are free"})
			b.waitFor("the agents' problem is stored", "SELECT bool_and(problems <> '{}') FROM site_agent")
		}, mend: func() {
			b.agent.Agent.SetProblems(nil)
			b.waitFor("the agents' problem is gone", "SELECT bool_and(problems = '{}') FROM site_agent")
		}}, "(Berlin), which cannot work: the disk is full: 3 MB are free", "/dhcp_server", "agent_failing", "/host/entity", "agent_failing"),
		named("a silent agent", preflightCase{broken: password, begin: func() {
			b.agent.IsDown.Store(true)
			b.waitFor("the agents' failure is noted", "SELECT bool_and(error IS NOT NULL) FROM site_agent")
			testkit.Execute(b.T, b.DB, "UPDATE site_agent SET seen_at = now() - interval '6 minutes'")
		}, mend: func() {
			b.agent.IsDown.Store(false)
			testkit.Execute(b.T, b.DB, "UPDATE site_agent SET asked_at = now() - interval '1 hour'")
			b.waitFor("the agents have answered", "SELECT bool_and(seen_at > now() - interval '1 minute') FROM site_agent")
		}}, "has not answered for 5 minutes", "/dhcp_server", "agent_unreachable", "/host/entity", "agent_unreachable"),
	}
}

// An install that cannot work is refused with the reason. The same install succeeds once the reason is gone.
func TestPreflight(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	for _, one := range b.preflightCases() {
		if one.begin != nil {
			one.begin()
		}
		body := b.machineBody(0, one.broken)
		refused := b.Do("POST", "/pxe/install", body)
		refused.WantErrors(one.want...)
		if !strings.Contains(refused.Text, one.says) {
			t.Errorf("%s: got %s, want %s in it", one.name, refused.Text, one.says)
		}
		b.wantReasons(one.name, body, one.want)
		if one.mend != nil {
			one.mend()
		}
		if one.whole != "" {
			body = strings.TrimSuffix(body, "}") + one.whole + "}"
		}
		b.wantReasons(one.name+", mended", body, nil)
		b.Do("POST", "/pxe/install", body).Want(200)
	}
}

// wantReasons previews an install, which has these pointers and codes as reasons.
func (b *bootSite) wantReasons(name, body string, want []string) {
	b.Helper()
	var got []string
	rendering := testkit.Decode[install.Rendering](b.Do("POST", path("/pxe/profile/%d/render", b.profile), body).Want(200))
	for _, reason := range rendering.Reasons {
		got = append(got, reason.Pointer, reason.Code)
	}
	if !slices.Equal(got, want) {
		b.Errorf("%s: the preview has the reasons %q, want %q", name, got, want)
	}
}

// A machine with Secure Boot needs signed bootloaders, TFTP, and a boot script that GRUB can run. Its files have that script.
func TestPreflightOfSecureBoot(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	use := func(name, body string) {
		id := b.create("/pxe/boot-script", map[string]any{"name": name, "body": body})
		b.Do("PATCH", path("/pxe/profile/%d", b.profile), map[string]any{"boot_script": id}).Want(200)
	}
	use("a disk", "#!ipxe\nkernel {{.URL.Files}}/linux\nsanboot --drive 0x80\n")
	body := b.machineBody(0, `, "password": "a long walk in the rain"`)
	body = strings.Replace(body, `"host": {`, `"host": {"firmware": "uefi-secure", `, 1)
	refused := b.Do("POST", "/pxe/install", body)
	for _, says := range []string{"needs local/boot/shimx64.efi", "needs local/boot/grubx64.efi",
		"does not work with Secure Boot: boot script ", " (a disk): line 3: only set, echo, kernel, initrd, and boot"} {
		if !strings.Contains(refused.Text, says) {
			t.Errorf("got %s, want %s in it", refused.Text, says)
		}
	}
	b.wantReasons("a script for iPXE", body,
		[]string{"/profile", "secure_boot", "/host/firmware", "no_bootloader", "/host/firmware", "no_bootloader"})
	use("Linux", "#!ipxe\nkernel {{.URL.Files}}/linux {{.Host.Firmware}} {{.Host.SecureBoot}}\nboot\n")
	for _, loader := range []string{siteagent.BootloaderShim, siteagent.BootloaderGRUB} {
		b.agent.WriteFile(loader)
	}
	offer := *b.agent.DHCP.Load()
	b.setDHCP(siteagent.DHCPHealth{Mode: siteagent.DHCPAuthoritative})
	b.waitFor("both agents report no TFTP", "SELECT bool_and(dhcp->>'tftp' IS NULL) FROM site_agent")
	b.wantReasons("no TFTP", body, []string{"/host/firmware", "no_bootloader", "/host/firmware", "no_bootloader"})
	b.setDHCP(offer)
	b.waitFor("both agents report TFTP", "SELECT bool_and(coalesce(dhcp->>'tftp', '') = 'true') FROM site_agent")
	rendering := testkit.Decode[install.Rendering](b.Do("POST", path("/pxe/profile/%d/render", b.profile), body).Want(200))
	got := rendering.RenderFiles[0].Text
	if len(rendering.Reasons) > 0 || !strings.HasPrefix(got, "linux '(tftp,") || !strings.HasSuffix(got, ")/linux' 'uefi' 'true'\nboot\n") {
		t.Errorf("got %q with the reasons %v, want a script for GRUB", got, rendering.Reasons)
	}
	if got := testkit.Decode[install.Install](b.Do("POST", "/pxe/install", body).Want(200)); got.Host.Firmware != "uefi-secure" {
		t.Errorf("got the firmware %s, want uefi-secure", got.Host.Firmware)
	}
}

// Every missing file is a reason of its own.
func TestPreflightOfFiles(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	script := b.create("/pxe/boot-script", map[string]any{"name": "two files",
		"body": "#!ipxe\nkernel {{.URL.Files}}/vmlinuz url={{.URL.Files}}/live.iso\nboot\n"})
	b.Do("PATCH", path("/pxe/profile/%d", b.profile), map[string]any{"boot_script": script}).Want(200)
	refused := b.Do("POST", "/pxe/install", b.machineBody(0, `, "password": "a long walk in the rain"`))
	refused.WantErrors("/profile", "file_missing", "/profile", "file_missing")
	for _, want := range []string{"needs vmlinuz, which file server 1 (files) lacks: put the file there",
		"lacks: import an ISO into the folder live, and sync it", `"profile has 2 errors."`} {
		if !strings.Contains(refused.Text, want) {
			t.Errorf("got %s, want %s in it", refused.Text, want)
		}
	}
}

// A template that uses a variable without a default needs it.
func TestPreflightOfVariables(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	preseed := b.create("/pxe/preseed", map[string]any{"name": "key", "body": `{{value "product_key" .Variables}} {{quote .Password}}`})
	b.Do("PATCH", path("/pxe/profile/%d", b.profile), map[string]any{"preseed": preseed}).Want(200)
	const password = `, "password": "a long walk in the rain"`
	refused := b.Do("POST", "/pxe/install", b.machineBody(0, password))
	refused.WantErrors("/variables", "variable_missing")
	want := fmt.Sprintf("must have product_key, which preseed %d (key) uses without a default", preseed)
	if !strings.Contains(refused.Text, want) {
		t.Errorf("got %s, want %s in it", refused.Text, want)
	}
	b.Do("POST", "/pxe/install", b.machineBody(0, password+`, "variables": {"product_key": "x"}`)).Want(200)
}

// A caller may pass over reasons, except that the address belongs to somebody else. The log shows what was passed over.
func TestForcedInstall(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	b.agent.RemoveFile("linux")
	b.Do("POST", "/pxe/install?force=no_login", b.machineBody(0, "")).WantErrors("/profile", "file_missing")
	forced := b.Do("POST", "/pxe/install?force=no_login,file_missing,no_dhcp", b.machineBody(0, "")).Want(200)
	want := `"forced":["file_missing","no_login"]`
	if !strings.Contains(forced.Text, want) {
		t.Errorf("got %s, want %s in it", forced.Text, want)
	}
	var isLogged bool
	if err := b.DB.QueryRow(t.Context(), `SELECT after @> '{"forced": ["file_missing", "no_login"]}' FROM change
		WHERE type = 'pxe.install.created' ORDER BY id DESC LIMIT 1`).Scan(&isLogged); err != nil || !isLogged {
		t.Errorf("got a record with the reasons: %v (%v), want true", isLogged, err)
	}
	at := path("/pxe/install/%d", forced.ID())
	b.Do("POST", at+"/cancel", nil).Want(200)
	b.Do("POST", at+"/retry", `{}`).WantErrors("/password", "no_login", "/profile", "file_missing")
	b.Do("POST", at+"/retry?force=file_missing", `{"password": "a long walk in the rain"}`).Want(200)

	foreign := b.machineBody(6, fmt.Sprintf(`, "password": "a long walk in the rain", "client": %d`, b.client))
	b.Do("POST", "/pxe/install?force=file_missing", foreign).WantErrors("/client", "client_mismatch")
	b.Do("POST", "/pxe/install?force=client_mismatch", foreign).
		WantDetail(problem.BadRequest, `The query is invalid: force cannot be "client_mismatch": there is agent_failing, agent_unreachable, file_missing, `+
			`no_bootloader, no_dhcp, no_login, secure_boot, variable_missing.`)
}

const somePassword = `, "password": "a long walk in the rain"`

// No agent has a file whose path is invalid, so an install that loads one is refused.
func TestPreflightOfInvalidPaths(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	for n, name := range []string{`a{{"\x00"}}`, `a{{"\xff"}}`, "a//b", "../a", strings.Repeat("a", 300)} {
		text := "#!ipxe\nkernel {{.URL.Files}}/" + name + "\n"
		script := b.create("/pxe/boot-script", map[string]any{"name": fmt.Sprint("boot ", n), "body": text})
		b.Do("PATCH", path("/pxe/profile/%d", b.profile), map[string]any{"boot_script": script}).Want(200)
		b.Do("POST", "/pxe/install", b.machineBody(0, somePassword)).WantErrors("/profile", "file_missing")
	}
}

// What an agent says about files that nobody asked for has no effect.
func TestPreflightOfALyingAgent(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	lying := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/missing" {
			_, _ = w.Write([]byte(testkit.JSON(siteagent.Missing{Paths: []string{"\x00", "never/asked"}})))
			return
		}
		b.agent.Agent.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(lying.Close)
	host, port, _ := strings.Cut(strings.TrimPrefix(lying.URL, "http://"), ":")
	for _, server := range []string{path("/pxe/dhcp/%d", b.dhcp), path("/pxe/file/%d", b.fileServer)} {
		b.Do("PATCH", server, map[string]any{"host": host, "port": port, "api_key": agentKey}).Want(200)
	}
	b.Do("POST", "/pxe/install", b.machineBody(0, somePassword)).Want(200)
}

// An install is refused if its client loses the IP entity after the preflight.
func TestInstallWhileTheEntityChangesHands(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	more := fmt.Sprintf(`%s, "client": %d`, somePassword, b.client)
	takeOver := func() {
		m := target{address: fmt.Sprintf("10.1.0.%d", b.macs+1), entity: int64(b.macs)}
		b.agent.OnRequest(func(r *http.Request, _ string) {
			if r.URL.Path == "/v1/missing" { // the preflight has read the owner
				b.Network.SetMachine(b.entity(m, 6))
			}
		})
	}
	body := b.machineBody(b.client, more)
	takeOver()
	b.Do("POST", "/pxe/install", body).WantErrors("/client", "client_mismatch")
	b.Do("POST", "/pxe/install", body).WantErrors("/client", "client_mismatch")

	b.agent.OnRequest(func(*http.Request, string) {})
	ended := b.Do("POST", "/pxe/install", b.machineBody(b.client, more)).Want(200).ID()
	b.Do("POST", path("/pxe/install/%d/cancel", ended), nil).Want(200)
	takeOver()
	b.Do("POST", path("/pxe/install/%d/retry", ended), `{"password": "a long walk in the rain"}`).WantErrors("/client", "client_mismatch")
}
