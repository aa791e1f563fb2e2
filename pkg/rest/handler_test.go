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

type answer struct {
	Name string `json:"name"`
}

type byToken struct {
	Token string `path:"token"`
	Q     string `query:"q"`
}

// pathToken is what a path may hold and a log may not.
const pathToken = "c2VjcmV0"

func serve(t *testing.T, do func(context.Context, byToken) (answer, error)) (status int, body, log string) {
	t.Helper()
	var logged bytes.Buffer
	handler := rest.NewHandler("things", nil, slog.New(slog.NewTextHandler(&logged, nil)), []rest.Route{
		rest.Read[byToken, answer]{Path: "/thing/{token}", Guard: guard.Public, Name: "getThing", Do: do}})
	r := httptest.NewRequest(http.MethodGet, "/thing/"+pathToken+"?q="+pathToken, nil)
	ctx, cancel := context.WithCancel(principal.With(r.Context(), &principal.Call{Peer: principal.Gateway, RequestID: "the-id"}))
	defer cancel()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r.WithContext(context.WithValue(ctx, leaveKey{}, cancel)))
	return w.Code, w.Body.String(), logged.String()
}

type leaveKey struct{}

// What went wrong inside is in the log, once, under the request's id and the route, and not in the answer.
func TestInternalErrors(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(context.Context, byToken) (answer, error){
		"error": func(context.Context, byToken) (answer, error) { return answer{}, errors.New("the inside") },
		"panic": func(context.Context, byToken) (answer, error) { panic("the inside") },
	} {
		status, body, log := serve(t, do)
		if status != 500 || strings.Contains(body, "inside") || !strings.Contains(body, `"request_id":"the-id"`) {
			t.Errorf("%s: got %d %s, want 500 with the request ID and without the cause", name, status, body)
		}
		if strings.Count(log, "level=ERROR") != 1 || !strings.Contains(log, "the inside") || !strings.Contains(log, "request_id=the-id") {
			t.Errorf("%s: got the log %s, want one error with its cause and request ID", name, log)
		}
		if strings.Contains(log, pathToken) || !strings.Contains(log, "route=/thing/{token}") {
			t.Errorf("%s: got the log %s, want the route and no token", name, log)
		}
	}
}

func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	_, _, log := serve(t, func(ctx context.Context, _ byToken) (answer, error) {
		ctx.Value(leaveKey{}).(context.CancelFunc)()
		return answer{}, ctx.Err()
	})
	if log != "" {
		t.Errorf("got the log %s, want none for a caller that leaves", log)
	}
}

// What does not come to its answer is given up.
func TestSlowOperation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		status, body, log := serve(t, func(ctx context.Context, _ byToken) (answer, error) {
			<-ctx.Done()
			return answer{}, ctx.Err()
		})
		if elapsed := time.Since(began); status != 503 || !strings.Contains(body, "longer than 30s") || elapsed != 30*time.Second {
			t.Errorf("got %d %s after %v, want 503 after 30s", status, body, elapsed)
		}
		if strings.Count(log, "level=ERROR") != 1 || strings.Contains(log, pathToken) {
			t.Errorf("got the log %s, want one error without the token", log)
		}
	})
}
