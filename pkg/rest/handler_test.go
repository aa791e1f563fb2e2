package rest_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/rest"
)

type view struct {
	Name string `json:"name"`
}

type byToken struct {
	Token string `path:"token"`
	Q     string `query:"q"`
}

// pathToken is a secret in the path, which no log may contain.
const pathToken = "c2VjcmV0"

// serve requests an operation that do performs, and returns the response and the log.
func serve(t *testing.T, do func(context.Context, byToken) (view, error)) (status int, body, log string) {
	t.Helper()
	var logged bytes.Buffer
	handler := rest.NewHandler("library", nil, slog.New(slog.NewTextHandler(&logged, nil)), []rest.Route{
		rest.Read[byToken, view]{Path: "/book/{token}", Guard: guard.Public, Name: "getBook", Do: do}})
	r := httptest.NewRequest(http.MethodGet, "/book/"+pathToken+"?q="+pathToken, nil)
	ctx, cancel := context.WithCancel(principal.NewContext(r.Context(), &principal.Call{Peer: principal.Gateway, RequestID: "request-1"}))
	defer cancel()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r.WithContext(context.WithValue(ctx, leaveKey{}, cancel)))
	return w.Code, w.Body.String(), logged.String()
}

// leaveKey is the context key of the function that cancels the request, as a caller that leaves does.
type leaveKey struct{}

// An internal error is logged once, with the request id and the route. The response does not contain its cause.
func TestInternalErrors(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(context.Context, byToken) (view, error){
		"error": func(context.Context, byToken) (view, error) { return view{}, errors.New("secret cause") },
		"panic": func(context.Context, byToken) (view, error) { panic("secret cause") },
	} {
		status, body, log := serve(t, do)
		if status != 500 || strings.Contains(body, "secret cause") || !strings.Contains(body, `"request_id":"request-1"`) {
			t.Errorf("%s: got %d %s, want 500 with the request ID and without the cause", name, status, body)
		}
		if strings.Count(log, "level=ERROR") != 1 || !strings.Contains(log, "secret cause") || !strings.Contains(log, "request_id=request-1") {
			t.Errorf("%s: got the log %s, want one error with its cause and request ID", name, log)
		}
		if strings.Contains(log, pathToken) || !strings.Contains(log, "route=/book/{token}") {
			t.Errorf("%s: got the log %s, want the route and no token", name, log)
		}
	}
}

func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	_, _, log := serve(t, func(ctx context.Context, _ byToken) (view, error) {
		ctx.Value(leaveKey{}).(context.CancelFunc)()
		return view{}, ctx.Err()
	})
	if log != "" {
		t.Errorf("got the log %s, want none for a caller that leaves", log)
	}
}

// An operation without a response after 30 seconds is cancelled.
func TestSlowOperation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		status, body, log := serve(t, func(ctx context.Context, _ byToken) (view, error) {
			<-ctx.Done()
			return view{}, ctx.Err()
		})
		if elapsed := time.Since(began); status != 503 || !strings.Contains(body, "longer than 30s") || elapsed != 30*time.Second {
			t.Errorf("got %d %s after %v, want 503 after 30s", status, body, elapsed)
		}
		if strings.Count(log, "level=ERROR") != 1 || strings.Contains(log, pathToken) {
			t.Errorf("got the log %s, want one error without the token", log)
		}
	})
}
