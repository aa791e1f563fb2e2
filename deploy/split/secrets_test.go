package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/jackc/pgx/v5"
	"github.com/pquerna/otp"
	"github.com/pquerna/otp/totp"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/mailbox"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/login"
	"github.com/ironplane/ironplane/services/identity/mfa"
)

// requestLines returns the lines of requests in a log of JSON.
func requestLines(screen string) (all []map[string]any) {
	for line := range strings.Lines(screen) {
		var members map[string]any
		if begin := strings.IndexByte(
			line,
			'{',
		); begin >= 0 && json.Unmarshal([]byte(line[begin:]), &members) == nil &&
			members["msg"] == "request" {
			all = append(all, members)
		}
	}
	return all
}

// TestSecretsStayInside sends and receives secrets, and looks for them afterwards. They and the master key are in
// no table, not in Redis, not in traces or output, and in no file except their own.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	traces := newCollector(t)
	box := mailbox.Start(t, mailbox.Options{})
	r := start(t, append(traces.variables(), "IRONPLANE_LOG_LEVEL=DEBUG", "IRONPLANE_LOG_FORMAT=json", "IRONPLANE_KEY_IN_QUERY=true",
		"IRONPLANE_SMTP=smtp+plain://"+box.Addr, "IRONPLANE_MAIL_FROM=noreply@example.com", "IRONPLANE_ADMIN_URL=https://admin.example.com")...)
	master, err := os.ReadFile(filepath.Join(r.data, "master-key"))
	if err != nil {
		t.Fatal(err)
	}
	secrets := append(sendSecrets(t, r.client), sendSignInSecrets(r, box)...)
	code := mailedCode(r, box)
	secrets = append(secrets, traceToken, url.PathEscape(traceToken), strings.TrimSpace(string(master)), r.client.Key)
	r.eventually("the log has all refused requests", func() bool {
		return strings.Contains(r.client.Do("GET", "/log?type=request.refused", nil).Text, "refused")
	})
	const publicHost = "dhcp.fra1.example.net" // a public value, which shows that secrets would be found
	database, redis := dumpDatabase(t, r.data), dumpRedis(t, r.data)
	if !strings.Contains(database, publicHost) || !strings.Contains(redis, "entry:") {
		t.Errorf("got %d bytes of the database and %q of Redis, want %q and %q in them", len(database), redis, publicHost, "entry:")
	}
	wantNoSecrets(t, "the database", database, secrets)
	wantNoSecrets(t, "Redis", redis, secrets)
	for where, text := range map[string]string{"the database": database, "Redis": redis} {
		if regexp.MustCompile(`(^|[^.0-9a-fx])`+code+`([^0-9a-f]|$)`).MatchString(text) ||
			strings.Contains(text, hex.EncodeToString([]byte(code))) {
			t.Errorf("%s: got a code that was mailed, want none", where)
		}
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.exit(); err != nil {
		t.Fatalf("got the exit %v and\n%s\nwant a clean one", err, r.screen)
	}
	wantNoSecrets(t, "the screen", r.screen.String(), secrets[:len(secrets)-1]) // without the first admin's key, which is printed there
	wantNoSecrets(t, "the traces", traces.text(), secrets)
	traces.wantAllowed(t)
	if !strings.Contains(traces.text(), "/pxe/dhcp") {
		t.Error("got traces without /pxe/dhcp, want it there")
	}
	if !strings.Contains(r.screen.String(), "/pxe/dhcp") {
		t.Error("got a screen without /pxe/dhcp, want it there")
	}
	lines := requestLines(r.screen.String())
	if len(lines) == 0 {
		t.Error("got no JSON line of a request, want at least one")
	}
	for _, line := range lines {
		for _, member := range []string{"request_id", "service", "route"} {
			if value, _ := line[member].(string); value == "" {
				t.Errorf("got the line %v of a request, want a value of %s", line, member)
			}
		}
	}
	files := 0
	err = filepath.WalkDir(r.data, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Base(path) == "master-key" {
			return err
		}
		text, err := os.ReadFile(path)
		wantNoSecrets(t, path, string(text), secrets)
		if strings.Contains(string(text), publicHost) {
			files++
		}
		return err
	})
	if err != nil || files == 0 {
		t.Fatalf("got %d files with %q (%v), want at least one", files, publicHost, err)
	}
}

// sendSecrets sends secrets in requests that are accepted, repeated and refused, and returns them with those it
// received.
func sendSecrets(t *testing.T, c *testkit.Client) (secrets []string) {
	t.Helper()
	fresh := func() string {
		value := fmt.Sprintf("a very long secret number %d of this test", len(secrets))
		secrets = append(secrets, value)
		return value
	}
	key := func(response *testkit.Response) string {
		value := testkit.Decode[struct{ Key string }](response.Want(200)).Key
		secrets = append(secrets, value)
		return value
	}
	c.Do("POST", "/admin", map[string]any{"email": "anna@example.com", "password": fresh()}).Want(200)
	c.Do("PATCH", "/admin/2", map[string]any{"password": fresh()}).Want(200)
	c.Do("PATCH", "/admin/1", map[string]any{"password": fresh(), "current_password": fresh()})
	c.Do("POST", "/admin", map[string]any{"email": 7, "password": fresh()}).Want(422)
	own := key(
		c.Do("POST", "/auth/key", map[string]any{"name": "anna's", "owner": map[string]any{"url": "/admin/2"}}, "Idempotency-Key", "4711"),
	)
	c.Do("POST", "/auth/key", map[string]any{"name": "anna's", "owner": map[string]any{"url": "/admin/2"}}, "Idempotency-Key", "4711").
		Want(200)
	imported := strings.ReplaceAll(fresh(), " ", "-")
	secrets = append(secrets, imported)
	key(c.Do("POST", "/auth/key", map[string]any{"name": "imported", "key": imported}))
	c.WithKey(imported).Do("GET", "/auth/key/current", nil).Want(200)
	c.WithKey("").Do("GET", "/auth/key/current?key="+own, nil).Want(200)
	c.WithKey("").Do("GET", "/auth/key/current?key="+own+"x", nil).Want(401)
	secrets = append(secrets, "ip_"+strings.Repeat("k", 49))
	c.WithKey("ip_"+strings.Repeat("k", 49)).Do("GET", "/admin", nil).Want(401)
	return append(secrets, sendDocumentedSecrets(t, c, c.WithKey(own))...)
}

// sendDocumentedSecrets sends each member that the API document declares as a secret. Each request is sent as in
// the document's example, repeated, sent by an unauthorized caller, and sent beside an unknown member.
func sendDocumentedSecrets(t *testing.T, c, anonymous *testkit.Client) (secrets []string) {
	t.Helper()
	api, err := openapi3.NewLoader().LoadFromData([]byte(c.Do("GET", "/-/openapi.json", nil).Want(200).Text))
	if err != nil {
		t.Fatal(err)
	}
	ids, accepted := map[string]int64{"/admin": 2}, 0
	for _, method := range []string{"POST", "PATCH"} {
		for _, at := range slices.Sorted(maps.Keys(api.Paths.Map())) {
			o := api.Paths.Value(at).GetOperation(method)
			if o == nil || o.RequestBody == nil || o.RequestBody.Value.Content["application/json"] == nil {
				continue
			}
			content := o.RequestBody.Value.Content["application/json"]
			path := parameter.ReplaceAllStringFunc(at, func(name string) string {
				return fmt.Sprint(cmp.Or(ids[at[:strings.Index(at, "/"+name)]], 1))
			})
			for _, member := range secretMembers(content.Schema.Value) {
				value := fmt.Sprintf("a-very-long-secret-number-%d-of-the-document", len(secrets))
				secrets = append(secrets, value)
				body := withMember(content.Example, strings.Split(member, "."), map[bool]string{true: "https://192.0.2.10/"}[member == "url"]+value)
				idempotencyKey := fmt.Sprint("secret-", len(secrets))
				response := c.Do(method, path, body, "Idempotency-Key", idempotencyKey)
				c.Do(method, path, body, "Idempotency-Key", idempotencyKey)
				anonymous.Do(method, path, body)
				c.Do(method, path, withMember(body, []string{"no such member"}, "x"))
				if response.Status == 200 {
					accepted++
					if method == "POST" && strings.Contains(response.Text, `"id"`) {
						ids[at] = response.ID()
					}
				}
			}
		}
	}
	if t.Logf("%d of %d secrets are accepted", accepted, len(secrets)); accepted < 10 {
		t.Errorf("got %d accepted secrets, want at least 10", accepted)
	}
	return secrets
}

// withMember returns a copy of an object with another value of the member at a path.
func withMember(object any, path []string, value string) map[string]any {
	known, _ := object.(map[string]any)
	altered := maps.Clone(known)
	if altered == nil {
		altered = map[string]any{}
	}
	if altered[path[0]] = any(value); len(path) > 1 {
		altered[path[0]] = withMember(known[path[0]], path[1:], value)
	}
	return altered
}

var parameter = regexp.MustCompile(`{[a-z_]+}`)

// secretMembers returns the paths of the secret members of a body.
func secretMembers(schema *openapi3.Schema) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		member := schema.Properties[name].Value
		for _, either := range append(openapi3.SchemaRefs{{Value: member}}, member.AnyOf...) {
			if either.Value.WriteOnly {
				all = append(all, name)
			}
			for _, inner := range secretMembers(either.Value) {
				all = append(all, name+"."+inner)
			}
		}
	}
	return all
}

// sendSignInSecrets signs in by password, by codes of an app, by a recovery code and by links, and returns the
// secrets that are used.
func sendSignInSecrets(r *running, box *mailbox.Server) (secrets []string) {
	t, c := r.t, r.client
	t.Helper()
	add := func(values ...string) { secrets = append(secrets, values...) }
	const password, invalid = "some walk in the rain to sign in with", "another walk in the rain to be refused with"
	add(password, invalid)
	id := c.Do("POST", "/admin", map[string]any{"email": "berta@example.com", "password": password}).Want(200).ID()
	signIn := func(password string) *testkit.Response {
		return c.WithKey("").Do("POST", "/auth/key", map[string]any{"type": "admin", "email": "berta@example.com", "password": password})
	}
	signIn(invalid).Want(401)
	session := c.WithKey(testkit.Decode[keys.APIKey](signIn(password).Want(200)).Key)
	add(session.Key)
	renewed := testkit.Decode[keys.APIKey](session.Do("POST", "/auth/key", `{}`).Want(200)).Key
	add(renewed)
	session = c.WithKey(renewed)

	app := testkit.Decode[mfa.Authenticator](
		session.Do("POST", "/auth/verify/auth", `{"method": 1}`, "Idempotency-Key", "4713").Want(200),
	)
	key, err := otp.NewKeyFromURL(*app.Value)
	if err != nil {
		t.Fatal(err)
	}
	add(key.Secret())
	at := fmt.Sprintf("/auth/verify/auth/%d", app.ID)
	challenge := session.Do("POST", at+"/code", `{}`).Want(200).ID()
	token, err := totp.GenerateCode(key.Secret(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	session.Do("PATCH", fmt.Sprintf("%s/code/%d", at, challenge), map[string]any{"token": token}).Want(200)
	recovery := testkit.Decode[mfa.Authenticator](session.Do("PATCH", at, `{"verified": true}`).Want(200)).RecoveryCodes
	for _, code := range recovery {
		add(code, strings.ReplaceAll(code, "-", ""))
	}
	verify := testkit.Decode[login.GivenKey](signIn(password).Want(200)).Verify
	add(verify.Challenge)
	response := func(token string) *testkit.Response {
		return c.WithKey("").Do("PATCH", fmt.Sprintf("%s/code/%s", at, verify.Challenge), map[string]any{"token": token})
	}
	response("an unknown token").Want(422)
	add("an unknown token", testkit.Decode[mfa.ConfirmedKey](response(recovery[0]).Want(200)).Key.Key)
	session.Do("POST", "/auth/verify/auth", `{"method": 2, "value": "phone@example.com"}`).Want(200)

	link, err := url.Parse(testkit.Decode[struct{ URL string }](session.Do("GET", "/auth/sso", nil).Want(200)).URL)
	if err != nil {
		t.Fatal(err)
	}
	fragment, err := url.ParseQuery(link.Fragment)
	if err != nil || fragment.Get("key") == "" {
		t.Fatalf("got the link %v (%v), want a key in its fragment", link, err)
	}
	add(
		fragment.Get("key"),
		testkit.Decode[keys.APIKey](c.WithKey("").Do("POST", "/auth/sso", map[string]any{"code": fragment.Get("key")}).Want(200)).Key,
	)
	c.WithKey("").Do("POST", "/auth/password-reset", `{"type": "admin", "email": "berta@example.com"}`).Want(200)
	reset := mailedText(r, box, regexp.MustCompile(`/auth/password-reset/([0-9]+)#token=([A-Za-z0-9_-]{43})`))
	const chosen = "a third walk in the rain that was chosen"
	add(reset[2], chosen)
	c.WithKey("").Do("PATCH", "/auth/password-reset/"+reset[1], map[string]any{"token": reset[2], "password": chosen}).Want(200)
	c.Do("DELETE", fmt.Sprintf("/admin/%d/verify", id), nil).Want(200)
	return secrets
}

// mailedCode has a code mailed and returns it without confirming it.
func mailedCode(r *running, box *mailbox.Server) string {
	r.t.Helper()
	auth := r.client.Do("POST", "/auth/verify/auth", `{"method": 2, "value": "phone@example.com"}`).Want(200).ID()
	r.client.Do("POST", fmt.Sprintf("/auth/verify/auth/%d/code", auth), `{}`).Want(200)
	return mailedText(r, box, regexp.MustCompile(`(?m)^ *([0-9]{6})\r?$`))[1]
}

// mailedText waits for a mail that matches an expression, and returns the match.
func mailedText(r *running, box *mailbox.Server, of *regexp.Regexp) (found []string) {
	r.t.Helper()
	plain := strings.NewReplacer("=\r\n", "", "=3D", "=")
	r.eventually("a mail matches "+of.String(), func() bool {
		for _, m := range box.Mails() {
			if found = of.FindStringSubmatch(plain.Replace(string(m.Data))); found != nil {
				return true
			}
		}
		return false
	})
	return found
}

// dumpDatabase returns all rows of all services as text.
func dumpDatabase(t *testing.T, data string) string {
	t.Helper()
	url, err := os.ReadFile(filepath.Join(data, "database-url"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), string(url))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	rows, err := conn.Query(
		t.Context(),
		"SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = ANY($1)",
		product.Names(),
	)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 20 {
		t.Fatalf("got the tables %v (%v), want at least 20", tables, err)
	}
	var all strings.Builder
	for _, table := range tables {
		var text string
		if err := conn.QueryRow(t.Context(), "SELECT coalesce(string_agg(r::text, E'\\n'), '') FROM "+table+" r").Scan(&text); err != nil {
			t.Fatal(err)
		}
		all.WriteString(text + "\n")
	}
	return all.String()
}

// dumpRedis returns all keys and values of the run's Redis.
func dumpRedis(t *testing.T, data string) string {
	t.Helper()
	url, err := os.ReadFile(filepath.Join(data, "run", "redis-url"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := cache.Open(secret.New(string(url)))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var all strings.Builder
	keys := client.Scan(t.Context(), 0, "*", 1000).Iterator()
	for keys.Next(t.Context()) {
		all.WriteString(keys.Val() + " " + client.Dump(t.Context(), keys.Val()).Val() + "\n")
	}
	if err := keys.Err(); err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// wantNoSecrets looks for secrets in a text, as they are, in hexadecimal as in bytea columns, and in base64.
func wantNoSecrets(t *testing.T, where, text string, secrets []string) {
	t.Helper()
	for n, value := range secrets {
		for _, look := range []string{value, hex.EncodeToString([]byte(value)), base64.StdEncoding.EncodeToString([]byte(value))} {
			if strings.Contains(text, look) {
				t.Errorf("%s: got secret %d, which begins with %.12q, want no secret", where, n, look)
			}
		}
	}
}
