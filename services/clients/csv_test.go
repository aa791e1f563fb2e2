package clients_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// Clients come in by CSV, and an export comes back. Passwords do not, and neither do rows of callers who are clients.
func TestClientsInCSV(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	c.System.SetIntegration(4, "Shop")
	send := func(caller *testkit.Client, query, sheet string) *testkit.Response {
		return caller.Do("POST", "/client"+query, sheet, "Content-Type", "text/csv")
	}
	const sheet = "email;first;last;billing_id\r\nben@example.com;Ben;Miller;7\r\ncarla@example.com;Carla;Díaz;\r\n"
	done := testkit.Decode[rest.Import](send(c.Client, "", sheet).Want(200))
	if done.Count != 2 || done.Last != done.First+1 {
		t.Fatalf("got %+v, want two clients", done)
	}
	list := c.Do("GET", "/client", nil, "Accept", "text/csv").Want(200).Text
	if done := testkit.Decode[rest.Import](send(c.Client, "", list).Want(200)); done.Unchanged != 2 || done.Updated != 0 {
		t.Errorf("%q sent back: got %+v, want two unchanged clients", list, done)
	}
	edited := fmt.Sprintf("id,last,billing_id\n%d,Baker,\n", done.First)
	if done := testkit.Decode[rest.Import](send(c.Client, "", edited).Want(200)); done.Updated != 1 {
		t.Errorf("got %+v, want one updated client", done)
	}
	if got := c.Do("GET", path("/client/%d", done.First), nil).Want(200).Text; !strings.Contains(got, `"name":"Ben Baker"`) ||
		strings.Contains(got, "billing_id") {
		t.Errorf("got %s, want Ben Baker without a billing id", got)
	}

	for query, want := range map[string][]string{
		"":              {"/2/email", "invalid", "/3/email", "taken", "/5/email", "taken"},
		"?dry_run=true": {"/2/email", "invalid", "/3/email", "taken", "/5/email", "taken"},
	} {
		rows := "email,first,last\nnobody,A,B\nCARLA@example.com,A,B\ndora@example.com,A,B\ndora@example.com,A,B\n"
		refused := send(c.Client, query, rows)
		refused.WantErrors(want...)
		if errs := testkit.Decode[problem.Problem](refused).Errors; errs[2].Message != "is in conflict with line 4 (line 5, column 1)" {
			t.Errorf("got %+v, want that line 5 is in conflict with line 4", errs[2])
		}
	}
	for _, column := range []string{"password", "current_password", "verify.require", "frist"} {
		code := map[string]string{"frist": "unknown"}[column]
		if code == "" {
			code = "unavailable"
		}
		send(c.Client, "?partial=true", "email,first,last,"+column+"\nd@example.com,D,E,true\n").
			WantErrors("/1/"+strings.ReplaceAll(column, ".", "/"), code)
	}

	send(c.asClient(done.First), "", "email,first,last\ne@example.com,E,F\n").Want(403)
	shop := c.asIntegration(4)
	own := testkit.Decode[rest.Import](send(shop, "", "email,first,last,billing_id\nshop@example.com,E,F,1\n").Want(200)).First
	foreign := send(shop, "?partial=true", fmt.Sprintf("id,last\n%d,Own\n%d,Other\n", own, done.First)).Want(403)
	if detail := testkit.Decode[problem.Problem](foreign).Detail; !strings.HasPrefix(detail, "Line 3: ") {
		t.Errorf("got %q, want a refusal that names line 3", detail)
	}
	if got := c.Do("GET", "/client", nil).Want(200).Text; strings.Count(got, `"email"`) != 3 || strings.Contains(got, "Own") {
		t.Errorf("got %s, want the two clients of the first import, and the shop's one as it was", got)
	}
}
