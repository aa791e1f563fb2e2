package pxe_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/media"
)

const windowsKey = "ABCDE-FGHIJ-KLMNO-PQRST-UVWXY"

// newWindows returns a site with the ISO of Windows, whose first edition has a license key, and the path of that edition. The
// seeded profile for Windows installs it.
func newWindows(t *testing.T) (b *bootSite, edition string) {
	t.Helper()
	b = newBootWith(t, service.Tuning{})
	image := windows(t)
	server := serveISO(t, func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(image))
	})
	iso := (&site{T: t, RunningService: b.RunningService}).imported(t, "win-2022", server.URL, "")
	at := path("/pxe/iso/%d/edition", iso.ID)
	first := testkit.Decode[[]media.ISOEdition](b.Do("GET", at+"?sort=number", nil).Want(200))[0]
	edition = at + path("/%d", first.ID)
	b.Do("PATCH", edition, map[string]any{"is_enabled": true, "license_key": windowsKey}).Want(200)
	profile := testkit.Decode[[]struct{ ID int64 }](b.Do("GET", "/pxe/profile?name=Windows%20Server%202022", nil).Want(200))[0].ID
	b.profile = profile
	b.Do("PATCH", path("/pxe/profile/%d", profile), map[string]any{"iso": map[string]any{"id": iso.ID, "edition": first.Name}}).Want(200)
	return b, edition
}

// The answer file of a machine has the edition and the license key of its profile's ISO, and the boot script loads that ISO's
// files. A preview hides the key. The variable product_key comes before the key, and nothing else shows it.
func TestLicenseKeyOfProfile(t *testing.T) {
	t.Parallel()
	b, edition := newWindows(t)
	preview := b.Do("POST", path("/pxe/profile/%d/render", b.profile), `{}`).Want(200).Text
	for _, want := range []string{"/win-2022\\n", "Windows Server 2022 SERVERSTANDARD", `\u003cProductKey\u003e\u003cKey\u003e[secret]`} {
		if !strings.Contains(preview, want) && !strings.Contains(preview, strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(want)) {
			t.Errorf("got the preview %s, want %s in it", preview, want)
		}
	}
	if strings.Contains(preview, windowsKey) {
		t.Errorf("got the preview %s, want no license key", preview)
	}
	answerFile := func(more string) string {
		m := b.forcedInstall("file_missing", more)
		return b.agent.MustRequest("GET", "/i/"+b.bootToken(m)+"/preseed", m.address, "")
	}
	if got, want := answerFile(""), "<ProductKey><Key>"+windowsKey+"</Key>"; !strings.Contains(got, want) {
		t.Errorf("got the answer file %s, want %s in it", got, want)
	}
	const own = "AAAAA-AAAAA-AAAAA-AAAAA-AAAAA"
	if got := answerFile(`, "variables": {"product_key": "` + own + `"}`); !strings.Contains(got, own) || strings.Contains(got, windowsKey) {
		t.Errorf("got the answer file %s, want the key of the variable only", got)
	}
	if list := b.Do("GET", "/pxe/install", nil).Want(200).Text; strings.Contains(list, windowsKey) {
		t.Errorf("got the installs %s, want no license key", list)
	}
	b.Do("PATCH", edition, `{"license_key": null}`).Want(200)
	if got := answerFile(""); strings.Contains(got, "<ProductKey>") {
		t.Errorf("got the answer file %s, want no product key", got)
	}
}

// A license key that cannot be unsealed fails the install, with the reason.
func TestDamagedLicenseKey(t *testing.T) {
	t.Parallel()
	b, _ := newWindows(t)
	testkit.Execute(t, b.DB, "UPDATE iso_edition SET license_key = '\\x00' WHERE license_key IS NOT NULL")
	m := b.forcedInstall("file_missing", "")
	b.awaitStatus(m, "failed")
	if i := b.view(m); i.Error == nil || *i.Error != "The license key of the edition Windows Server 2022 SERVERSTANDARD cannot be unsealed." {
		t.Errorf("got %s, want that the license key cannot be unsealed", testkit.JSON(i))
	}
}

// Templates reach the drivers of their profile on the file server.
func TestDriversOfProfile(t *testing.T) {
	t.Parallel()
	b := newBootWith(t, service.Tuning{})
	driver := b.create("/pxe/driver", map[string]any{"name": "virtio", "driver": "aXJvbnBsYW5l"})
	boot := b.create("/pxe/boot-script", map[string]any{"name": "with drivers",
		"body": "#!ipxe\n{{range .Drivers}}initrd {{$.URL.Files}}/{{.Path}} {{.Name}}\n{{end}}boot\n"})
	b.Do("PATCH", path("/pxe/profile/%d", b.profile), map[string]any{"boot_script": boot, "drivers": []int64{driver}}).Want(200)
	want := path("drivers/%d, which file server 1 (files) lacks: sync it", driver)
	if got := b.Do("POST", path("/pxe/profile/%d/render", b.profile), b.machineBody(0, "")).Want(200).Text; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s in it", got, want)
	}
}
