package process

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/secret"
)

func TestTraceHeaders(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]http.Header{
		"":                     {},
		"api-key=k":            {"Api-Key": {"k"}},
		" api-key = k , b=c ,": {"Api-Key": {"k"}, "B": {"c"}},
		"Authorization=Basic%20dXNlcjpwYXNz%3D, x=a=b+c": {"Authorization": {"Basic dXNlcjpwYXNz="}, "X": {"a=b+c"}},
		"x=":       {"X": {""}},
		"x=a%2Cb":  {"X": {"a,b"}},
		"x=%C3%A4": {"X": {"ä"}},
	} {
		if got, err := parseTraceHeaders(secret.New(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %v and %v, want %v", text, got, err, want)
		}
	}
	for text, why := range map[string]string{
		"tops3cret":              "header 1 is not name=value",
		"a=b,tops3cret":          "header 2 is not name=value",
		"=tops3cret":             "header 1 does not begin with the name",
		"top s3cret=x":           "header 1 does not begin with the name",
		"x=tops3cret%":           "header 1 has a malformed percent-encoding",
		"x=tops3cret%0d%0aY: z":  "header 1 has a character",
		"x=tops3cret,X=other":    "header 2 has the name of an earlier one",
		"content-type=tops3cret": "header 1 is a header that cannot be set",
	} {
		_, err := parseTraceHeaders(secret.New(text))
		if err == nil || !strings.HasPrefix(err.Error(), "OTEL_EXPORTER_OTLP_HEADERS: "+why) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: got %v, want %s, without the value", text, err, why)
		}
	}
}

// traced is a program whose only configuration is what operators see.
type traced struct {
	Operations OperationsConfig
}

func (c *traced) program(serve func(context.Context) error) Program {
	return Program{
		Name:     "thing",
		Config:   c,
		Commands: []Command{{Name: "serve", Run: serve}},
		Checks:   func() []health.Check { return c.Operations.Checks() },
	}
}

// Malformed headers and endpoints are refused by check and at the start, without their values.
func TestMalformedTracesAreRefused(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]string{
		"OTEL_EXPORTER_OTLP_HEADERS=tops3cret":        "OTEL_EXPORTER_OTLP_HEADERS: header 1 is not name=value",
		"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318/": "OTEL_EXPORTER_OTLP_ENDPOINT is not a URL",
	} {
		var c traced
		p := c.program(func(ctx context.Context) error {
			return NewOperations("thing").Run(ctx, c.Operations, LogConfig{}, func(context.Context, *slog.Logger) error {
				t.Errorf("%s: got a start, want none", variable)
				return nil
			})
		})
		var screen bytes.Buffer
		err := p.Run(t.Context(), []string{"check"}, []string{variable}, &screen)
		if err == nil || !strings.Contains(screen.String(), "fails    OTEL_EXPORTER_OTLP_ENDPOINT and _HEADERS: valid: "+want) {
			t.Errorf("check: got %v and\n%s\nwant %s", err, &screen, want)
		}
		err = p.Run(t.Context(), []string{"serve"}, []string{variable}, &screen)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error()+screen.String(), "s3cret") {
			t.Errorf("start: got %v and\n%s\nwant %s", err, &screen, want)
		}
	}
}

// The headers in a file go to the receiver, also after the file has changed. They do not go where a redirect leads.
func TestTraceHeadersAreSent(t *testing.T) {
	t.Parallel()
	var got []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("got a request after a redirect, want none")
	}))
	t.Cleanup(elsewhere.Close)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var sent otlp.TracesData
		if err != nil || proto.Unmarshal(body, &sent) != nil || len(sent.ResourceSpans) != 1 {
			t.Errorf("got %v and %v, want the spans of one resource", err, &sent)
		}
		got = append(got, r.Header.Get("Content-Type")+" "+r.Header.Get("Api-Key"))
		if len(got) > 2 {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}
	}))
	t.Cleanup(receiver.Close)
	file := filepath.Join(t.TempDir(), "headers")
	var c traced
	p := c.program(func(ctx context.Context) error {
		client := otlpClient{receiver.URL, c.Operations.TraceHeaders}
		for i, text := range []string{"api-key=first", "api-key=second", "api-key=second", "tops3cret"} {
			if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
				return err
			}
			err := client.UploadTraces(ctx, []*otlp.ResourceSpans{{}})
			if (err != nil) != (i > 1) || err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%d: got %v, want an error from the redirect on, without the value", i, err)
			}
		}
		return nil
	})
	if err := os.WriteFile(file, []byte("api-key=first"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context(), []string{"serve"}, []string{"OTEL_EXPORTER_OTLP_HEADERS_FILE=" + file}, io.Discard); err != nil {
		t.Fatal(err)
	}
	const kind = "application/x-protobuf "
	if want := []string{kind + "first", kind + "second", kind + "second"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
