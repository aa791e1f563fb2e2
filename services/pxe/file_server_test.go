package pxe_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe"
)

const hostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUFGSJFCT8IXStp9iotgQlFRILJ5FVUFVlM3Z2l4gNG"

func TestFileServer(t *testing.T) {
	t.Parallel()
	c, _, _ := newClient(t)

	const nested = `{"name": "fra1", "install_max_concurrent": 20, "group_id": 1, "http": {"host": "files.fra1.example.net", "port": 8443, "use_https": true, "api_key": "hunter2"}, "ssh": {"port": "2222", "public_key": "` + hostKey + `   fra1 files"}}`
	want := `{"id":1,"name":"fra1","install_max_concurrent":20,"group":{"id":1,"name":"Group 1"},"http":{"host":"files.fra1.example.net","port":8443,"use_https":true},"ssh":{"port":2222,"public_key":"` + hostKey + ` fra1 files","use_sftp":false}}` + "\n"
	if got := c.Do("POST", "/pxe/file", nested).Want(200).Text; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// The documented required names are the last parts of the nested ones.
	const flat = `{"name": "fra2", "install_max_concurrent": "5", "group": {"id": 2}, "parent": 1, "host": "2001:db8::7", "port": "80", "api_key": "hunter2", "public_key": "` + hostKey + `"}`
	want = `{"id":2,"name":"fra2","install_max_concurrent":5,"group":{"id":2,"name":"Group 2"},"parent":{"id":1,"name":"fra1"},"http":{"host":"2001:db8::7","port":80,"use_https":false},"ssh":{"port":22,"public_key":"` + hostKey + `","use_sftp":false}}` + "\n"
	created := c.Do("POST", "/pxe/file", flat).Want(200)
	if created.Text != want {
		t.Errorf("got %s, want %s", created.Text, want)
	}
	if back := c.Do("PATCH", "/pxe/file/2", created.Text).
		Want(200); back.Text != want ||
		back.Header.Get("ETag") != created.Header.Get("ETag") {
		t.Errorf("got %s with the ETag %s, want the file server unchanged: %s", back.Text, back.Header.Get("ETag"), want)
	}

	c.Do("POST", "/pxe/file", `{}`).
		WantErrors("/group_id", "required", "/http/api_key", "required", "/http/host", "required", "/http/port", "required",
			"/install_max_concurrent", "required", "/name", "required", "/ssh/public_key", "required")
	c.Do("POST", "/pxe/file", strings.Replace(flat, "fra2", "fra1", 1)).WantErrors("/name", "taken")
	c.Do("POST", "/pxe/file", strings.NewReplacer("fra2", "fra3", `"parent": 1`, `"parent": 999`).Replace(flat)).
		WantErrors("/parent", "not_found")
	c.Do("PATCH", "/pxe/file/1", `{"install_max_concurrent": 0, "ssh": {"port": 65536}, "http": {"host": "http://x"}}`).
		WantErrors("/http/host", "invalid", "/install_max_concurrent", "out_of_range", "/ssh/port", "out_of_range")
	for _, key := range []string{"ssh-ed25519", "x", "ssh-ed25519 AAAA", "ssh-rsa " + strings.Fields(hostKey)[1], `command="x" ` + hostKey, hostKey + "\n" + hostKey, "-----BEGIN OPENSSH PRIVATE KEY-----"} {
		c.Do("PATCH", "/pxe/file/1", map[string]any{"public_key": key}).WantErrors("/public_key", "invalid")
	}
	c.Do("PATCH", "/pxe/file/1", `{"ssh": {"port": null}}`).Want(200)

	// A stored key is not sent to another address.
	for _, elsewhere := range []string{`{"host": "evil.example.net"}`, `{"http": {"port": null}}`, `{"port": 8444}`, `{"use_https": false}`} {
		c.Do("PATCH", "/pxe/file/1", elsewhere).WantErrors("/http/api_key", "required")
	}
	c.Do("PATCH", "/pxe/file/1", `{"port": 8444, "api_key": "hunter3"}`).Want(200)

	for query, want := range map[string]string{
		"?q=FRA1.ex": "fra1", "?host=2001:db8::7": "fra2", "?group_id=2": "fra2", "?parent_id=1": "fra2", "?sort=-name&per_page=1": "fra2",
	} {
		if found := testkit.Decode[[]pxe.FileServer](c.Do("GET", "/pxe/file"+query, nil).Want(200)); len(found) != 1 || found[0].Name != want {
			t.Errorf("%s: got %+v, want %s", query, found, want)
		}
	}
}

// newFileServer creates a file server below a parent (0: none) and returns its id.
func newFileServer(t *testing.T, c *testkit.Client, name string, parent int64) int64 {
	t.Helper()
	body := map[string]any{
		"name":                   name,
		"install_max_concurrent": 1,
		"group":                  1,
		"host":                   "192.0.2.1",
		"port":                   443,
		"api_key":                "secret",
		"public_key":             hostKey,
	}
	if parent != 0 {
		body["parent"] = parent
	}
	return c.Do("POST", "/pxe/file", body).Want(200).ID()
}

func TestFileServerParents(t *testing.T) {
	t.Parallel()
	c, _, _ := newClient(t)
	top := newFileServer(t, c, "top", 0)
	middle := newFileServer(t, c, "middle", top)
	bottom := newFileServer(t, c, "bottom", middle)
	at := func(id int64) string { return fmt.Sprintf("/pxe/file/%d", id) }
	for _, below := range []int64{top, middle, bottom} {
		c.Do("PATCH", at(top), map[string]any{"parent_id": below}).WantErrors("/parent_id", "cycle")
	}
	c.Do("DELETE", at(top), nil).
		WantDetail(problem.Conflict, "File server 1 is the parent of file server 2 (middle). Move or delete its children first.")
	newFileServer(t, c, "another", top)
	c.Do("DELETE", at(top), nil).
		WantDetail(problem.Conflict, "File server 1 is the parent of file server 2 (middle) and 1 more. Move or delete its children first.")
	c.Do("PATCH", at(bottom), `{"parent": null}`).Want(200)
	c.Do("PATCH", at(top), map[string]any{"parent": bottom}).Want(200)
	c.Do("DELETE", at(middle), nil).Want(200)
}

// Many callers make file servers each other's parent at once, and no cycle comes about.
func TestFileServerParentsAtOnce(t *testing.T) {
	t.Parallel()
	c, db, _ := newClient(t)
	const servers = 8
	for i := range servers {
		newFileServer(t, c, fmt.Sprint("server ", i), 0)
	}
	var callers sync.WaitGroup
	for caller := range 32 {
		callers.Go(func() {
			for round := range 4 {
				child := (caller+round)%servers + 1
				parent := (child+caller/servers)%servers + 1
				if response := c.Do("PATCH", fmt.Sprintf("/pxe/file/%d", child), map[string]any{"parent": parent}); response.Status != 200 {
					response.WantErrors("/parent", "cycle")
				}
			}
		})
	}
	callers.Wait()
	var cyclic, children int
	err := db.QueryRow(t.Context(), `
		WITH RECURSIVE above AS (SELECT id, parent_id FROM file_server UNION SELECT a.id, f.parent_id FROM above a JOIN file_server f ON f.id = a.parent_id)
		SELECT count(*) FILTER (WHERE id = parent_id), count(*) FILTER (WHERE parent_id IS NOT NULL) FROM above`).Scan(&cyclic, &children)
	if err != nil || cyclic != 0 || children == 0 {
		t.Errorf("got %d file servers below themselves and %d children (%v), want 0 and some", cyclic, children, err)
	}
}
