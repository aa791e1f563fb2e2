package pxe_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/templates"
)

// A profile goes to another installation, and is copied in its own, with all its templates.
func TestSharedProfile(t *testing.T) {
	t.Parallel()
	c, db, _ := newClient(t)
	boot, preseed := createItem(
		t,
		c,
		"/pxe/boot-script",
		`{"name": "boot", "body": "#!ipxe\nchain {{.URL.Preseed}}\n"}`,
	), createItem(
		t,
		c,
		"/pxe/preseed",
		`{"name": "seed", "is_installable": true, "description": "small", "body": "a: \"b\"\n\n  c"}`,
	)
	first, second := createItem(
		t,
		c,
		"/pxe/shell",
		`{"name": "first", "body": "1"}`,
	), createItem(
		t,
		c,
		"/pxe/shell",
		`{"name": "second", "body": "2"}`,
	)
	profile := createItem(
		t,
		c,
		"/pxe/profile",
		fmt.Sprintf(
			`{"name": "mine", "billing_id": "7", "access_client": true, "boot_script": %d, "preseed": %d, "shell": {"after": [%d, %d], "during": [%[4]d]}, "time_until_marked_failed": 5, "experimental": true}`,
			boot,
			preseed,
			second,
			first,
		),
	)
	at := fmt.Sprintf("/pxe/profile/%d", profile)
	file := testkit.Decode[templates.SharedProfile](c.Do("GET", at+"/export", nil).Want(200)).YAML
	if strings.Contains(file, "billing") || !strings.Contains(file, "shell_after:\n    - second\n    - first\n") {
		t.Errorf("got\n%s\nwant the shell scripts second and first after the install, and no billing", file)
	}

	// In the same installation, the existing templates are used.
	reimported := testkit.Decode[templates.OSReloadProfile](
		c.Do("POST", "/pxe/profile/import", map[string]any{"yaml": file, "name": "again"}).Want(200),
	)
	if reimported.BootScript.ID != boot || reimported.Preseed.ID != preseed ||
		fmt.Sprint(reimported.Shell) != fmt.Sprint(templates.ProfileShell{After: []int64{second, first}, During: []int64{first}}) ||
		*reimported.TimeUntilMarkedFailed != 5 || !reimported.Experimental ||
		reimported.AccessClient ||
		reimported.BillingID != nil {
		t.Errorf("got %+v imported where it is, want it as it was without client access and billing", reimported)
	}
	c.Do("POST", "/pxe/profile/import", map[string]any{"yaml": file}).WantErrors("/name", "taken")

	// In another installation they are created. A name that is in use gets the profile's name appended.
	elsewhere, otherDB, _ := newClient(t)
	createItem(t, elsewhere, "/pxe/boot-script", `{"name": "boot", "body": "another"}`)
	brought := testkit.Decode[templates.OSReloadProfile](elsewhere.Do("POST", "/pxe/profile/import", map[string]any{"yaml": file}).Want(200))
	if brought.Name != "mine" || brought.BootScript.Name != "boot (mine)" || brought.Preseed.Name != "seed" || len(brought.Shell.After) != 2 {
		t.Errorf("got %+v imported elsewhere, want mine with boot (mine), seed and 2 shell scripts", brought)
	}
	if back := testkit.Decode[templates.SharedProfile](
		elsewhere.Do("GET", fmt.Sprintf("/pxe/profile/%d/export", brought.ID), nil).Want(200),
	).YAML; strings.Replace(
		back,
		"boot (mine)",
		"boot",
		1,
	) != file {
		t.Errorf("got\n%s\nexported again, want with the boot script's name changed\n%s", back, file)
	}
	var records int
	if err := otherDB.QueryRow(t.Context(), "SELECT count(*) FROM change WHERE type LIKE 'pxe.%.created'").
		Scan(&records); err != nil ||
		records != 6 {
		t.Errorf("got %d records (%v), want 6", records, err)
	}

	copied := testkit.Decode[templates.OSReloadProfile](c.Do("POST", at+"/copy", `{"name": "copied"}`).Want(200))
	if copied.BootScript.Name != "boot (copied)" || copied.Preseed.Name != "seed (copied)" || copied.Shell.During[0] == first ||
		len(copied.Shell.After) != 2 {
		t.Errorf("got the copy %+v, want copies of the boot script, the preseed and the shell scripts", copied)
	}
	c.Do("POST", at+"/copy", `{"name": "copied"}`).WantErrors("/name", "taken")
	c.Do("POST", at+"/copy", `{}`).WantErrors("/name", "required")
	c.Do("POST", "/pxe/profile/999/copy", `{"name": "x"}`).Want(404)
	var left int
	if err := db.QueryRow(t.Context(), "SELECT count(*) FROM boot_script WHERE name LIKE 'boot (%'").Scan(&left); err != nil || left != 1 {
		t.Errorf("got %d boot scripts of refused copies and imports (%v), want 0", left-1, err)
	}

	for file, code := range map[string]string{
		"": "required", "x": "invalid", "a: [": "invalid", strings.Replace(file, "ironplane_profile: 1", "ironplane_profile: 2", 1): "invalid",
		file + "more: x\n": "invalid", file + "---\na: b\n": "invalid",
		strings.Replace(file, "name: mine", "name: ''", 1): "invalid", strings.Replace(file, "- second", "- third", 1): "invalid",
		strings.Replace(file, ".URL.Preseed", ".URL.Nothing", 1):                               "template",
		strings.Replace(file, "time_until_marked_failed: 5", "time_until_marked_failed: 0", 1): "invalid",
		"ironplane_profile: 1\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nname: " +
			"[*c,*c,*c,*c,*c,*c,*c]": "invalid",
	} {
		c.Do("POST", "/pxe/profile/import", map[string]any{"yaml": file}).WantErrors("/yaml", code)
	}
}
