package pxe_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/templates"
)

// createItem creates an item and returns its id.
func createItem(t *testing.T, c *testkit.Client, path, body string) int64 {
	t.Helper()
	return c.Do("POST", path, body).Want(200).ID()
}

func TestProfile(t *testing.T) {
	t.Parallel()
	c, db, _ := newClient(t)
	testkit.Execute(t, db, "INSERT INTO ref (type, id, name, version) VALUES ('email/template', 7, 'finished', 1)")
	boot, preseed := createItem(t, c, "/pxe/boot-script", `{"name": "boot"}`), createItem(t, c, "/pxe/preseed", `{"name": "seed"}`)
	first, second := createItem(t, c, "/pxe/shell", `{"name": "first"}`), createItem(t, c, "/pxe/shell", `{"name": "second"}`)
	whole := c.Do("POST", "/pxe/profile", fmt.Sprintf(`{"name": "Debian", "billing_id": "deb", "boot_script": {"id": %d}, "preseed": "%d", "email": {"template": 7},
		"shell": {"after": [%d, {"id": %d}, %[3]d], "during": [%d]}, "time_until_marked_failed": 90}`, boot, preseed, second, first, first)).
		Want(200)
	want := fmt.Sprintf(
		`"name":"Debian","billing_id":"deb","access_client":false,"experimental":false,"boot_script":{"id":%d,"name":"boot"},"preseed":{"id":%d,"name":"seed"},"drivers":[],"email":{"template":{"id":7,"name":"finished"}},"shell":{"after":[%d,%d],"during":[%d]},"time_until_marked_failed":90}`,
		boot,
		preseed,
		second,
		first,
		first,
	)
	if !strings.Contains(whole.Text, want) {
		t.Errorf("got %s, want %s", whole.Text, want)
	}
	at := fmt.Sprintf("/pxe/profile/%d", whole.ID())
	if back := c.Do("PATCH", at, whole.Text).Want(200); back.Header.Get("ETag") != whole.Header.Get("ETag") {
		t.Errorf("got %s after the profile was sent back, want it unchanged: %s", back.Text, whole.Text)
	}
	list := c.Do("GET", "/pxe/profile?name=Debian", nil).Want(200).Text
	if want := fmt.Sprintf(
		`[{"id":%d,"name":"Debian","billing_id":"deb","access_client":false,"experimental":false}]`,
		whole.ID(),
	); strings.TrimSpace(
		strings.ReplaceAll(list, "\n", ""),
	) != want {
		t.Errorf("got the list %s, want %s", list, want)
	}

	c.Do("POST", "/pxe/profile", `{}`).WantErrors("/boot_script", "required", "/name", "required")
	c.Do("POST", "/pxe/profile", fmt.Sprintf(`{"name": "Debian", "boot_script": %d}`, boot)).WantErrors("/name", "taken")
	for body, pointer := range map[string]string{`"boot_script": 999`: "/boot_script", `"preseed": 999`: "/preseed", `"shell": {"after": [999]}`: "/shell/after", `"shell": {"during": [999]}`: "/shell/during"} {
		c.Do("PATCH", at, "{"+body+"}").WantErrors(pointer, "not_found")
	}
	c.Do("PATCH", at, `{"time_until_marked_failed": 0}`).WantErrors("/time_until_marked_failed", "out_of_range")

	// The items that it uses cannot be deleted.
	for path, noun := range map[string]string{
		fmt.Sprintf("/pxe/boot-script/%d", boot): "Boot script", fmt.Sprintf("/pxe/preseed/%d", preseed): "Preseed",
		fmt.Sprintf("/pxe/shell/%d", second): "Shell script",
	} {
		c.Do("DELETE", path, nil).
			WantDetail(
				problem.Conflict, fmt.Sprintf("%s %s is used by profile %d (Debian).", noun, path[strings.LastIndex(path, "/")+1:], whole.ID()),
			)
	}
	another := createItem(t, c, "/pxe/profile", fmt.Sprintf(`{"name": "Another", "boot_script": %d}`, boot))
	if text := c.Do("DELETE", fmt.Sprintf("/pxe/boot-script/%d", boot), nil).Want(409).Text; !strings.Contains(text, "(Debian) and 1 more.") {
		t.Errorf("got %s, want the profile Debian and 1 more", text)
	}
	c.Do("PATCH", at, `{"preseed": null, "shell": {"after": [], "during": null}, "email": {"template": null}, "billing_id": null}`).Want(200)
	c.Do("DELETE", fmt.Sprintf("/pxe/preseed/%d", preseed), nil).Want(200)
	c.Do("DELETE", fmt.Sprintf("/pxe/shell/%d,%d", first, second), nil).Want(200)
	c.Do("DELETE", fmt.Sprintf("%s,%d", at, another), nil).Want(200)
	c.Do("DELETE", fmt.Sprintf("/pxe/boot-script/%d", boot), nil).Want(200)
}

// A client sees the profiles for clients, and no other items.
func TestProfilesOfClients(t *testing.T) {
	t.Parallel()
	c, db, box := newClient(t)
	boot := createItem(t, c, "/pxe/boot-script", `{"name": "boot"}`)
	shown := createItem(t, c, "/pxe/profile", fmt.Sprintf(`{"name": "Shown", "access_client": true, "boot_script": %d}`, boot))
	hidden := createItem(t, c, "/pxe/profile", fmt.Sprintf(`{"name": "Hidden", "boot_script": %d}`, boot))
	client := testkit.NewClient(
		t,
		testkit.As(handler(t, db, box), &principal.Principal{Owner: principal.Owner{Type: principal.Client, ID: 5}, KeyID: 1}),
	)
	if all := testkit.Decode[[]templates.ListedProfile](client.Do("GET", "/pxe/profile", nil).Want(200)); len(all) != 1 || all[0].ID != shown {
		t.Errorf("got the profiles %+v, want only %d", all, shown)
	}
	if text := client.Do("GET", fmt.Sprintf("/pxe/profile/%d", shown), nil).
		Want(200).
		Text; strings.Contains(text, "boot") ||
		!strings.Contains(text, "Shown") {
		t.Errorf("got %s, want the profile Shown without its boot script", text)
	}
	for _, id := range []int64{hidden, 999} {
		client.Do("GET", fmt.Sprintf("/pxe/profile/%d", id), nil).Want(404)
	}
	client.Do("PATCH", fmt.Sprintf("/pxe/profile/%d", shown), `{"name": "Mine"}`).Want(403)
	for _, path := range []string{"/pxe/boot-script", "/pxe/preseed", "/pxe/shell", "/pxe/file", "/pxe/dhcp"} {
		client.Do("GET", path, nil).Want(403)
	}
}
