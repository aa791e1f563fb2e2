package egress_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/egress"
)

func TestPublic(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"1.1.1.1": true, "2606:4700::1111": true, "::ffff:1.1.1.1": true,
		"127.0.0.1": false, "10.0.0.1": false, "172.31.255.255": false, "192.168.1.1": false, "169.254.169.254": false, "100.64.0.1": false,
		"0.0.0.0": false, "0.1.2.3": false, "224.0.0.1": false, "255.255.255.255": false, "192.0.2.1": false, "198.18.0.1": false,
		"250.1.1.1": false,
		"::":        false, "::1": false, "::10.0.0.1": false, "::ffff:10.0.0.1": false, "fe80::1": false, "fd00::1": false, "fec0::1": false,
		"ff02::1":           false,
		"64:ff9b::10.0.0.1": false, "2002:a00:1::": false, "2001:0:a00:1::": false, "2001:db8::1": false,
	} {
		if got := egress.IsPublic(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: got %t, want %t", address, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	if n, err := egress.Parse(
		" 10.1.2.3/16, 127.0.0.1 fd00::/8",
	); err != nil || len(n) != 3 || n[0].String() != "10.1.0.0/16" ||
		n[1].String() != "127.0.0.1/32" {
		t.Errorf("got %v, %v, want three networks that begin with 10.1.0.0/16 and 127.0.0.1/32", n, err)
	}
	for _, invalid := range []string{"10.0.0.0/33", "localhost", "10.0.0.0/8 x"} {
		if _, err := egress.Parse(invalid); err == nil {
			t.Errorf("%s: got no error, want one", invalid)
		}
	}
}

// A request for a caller reaches no address of the operator's networks, also after a redirect and by any name.
func TestOwnNetworks(t *testing.T) {
	t.Parallel()
	reached := 0
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached++
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		}
	}))
	defer inside.Close()
	ask := func(networks, url string) error {
		t.Helper()
		allowed, err := egress.Parse(networks)
		if err != nil {
			t.Fatal(err)
		}
		client := allowed.Client()
		defer client.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(r)
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
		return err
	}
	named := strings.Replace(inside.URL, "127.0.0.1", "localhost", 1)
	for _, url := range []string{
		inside.URL, named, strings.Replace(inside.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1),
		strings.Replace(inside.URL, "127.0.0.1", "0.0.0.0", 1),
	} {
		if err := ask("", url); !errors.Is(err, egress.ErrOwnNetwork) || egress.Describe(err) != egress.ErrOwnNetwork.Error() {
			t.Errorf("%s: got %v, want %v", url, err, egress.ErrOwnNetwork)
		}
	}
	if reached > 0 {
		t.Fatalf("got %d requests inside, want none", reached)
	}
	if err := ask("127.0.0.1", inside.URL); err != nil || reached != 1 {
		t.Errorf("an allowed network: got %v and %d requests inside, want no error and 1", err, reached)
	}
	if err := ask("127.0.0.1/32", inside.URL+"?to=http://127.0.0.2:9/"); !errors.Is(err, egress.ErrOwnNetwork) {
		t.Errorf("a redirect to an own network: got %v, want %v", err, egress.ErrOwnNetwork)
	}
	if err := ask("127.0.0.1", inside.URL+"?to=http://1.1.1.1/"); !errors.Is(err, egress.ErrUnencrypted) {
		t.Errorf("a redirect to plain HTTP: got %v, want %v", err, egress.ErrUnencrypted)
	}
}

// The reason of a failure contains no address.
func TestReason(t *testing.T) {
	t.Parallel()
	client := egress.Networks{netip.MustParsePrefix("127.0.0.1/32")}.Client()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, ctx := range []context.Context{t.Context(), ctx} {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:1/?token=s3cr3t", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Do(r) //nolint:bodyclose // there is none
		if reason := egress.Describe(err); err == nil || strings.Contains(reason, "s3cr3t") || strings.Contains(reason, "127.0.0.1") {
			t.Errorf("got the reason %q, want one without the secret and the address", reason)
		}
	}
}
