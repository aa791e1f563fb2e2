package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"golang.org/x/net/http/httpguts"
	"google.golang.org/protobuf/proto"

	"github.com/ironplane/ironplane/pkg/runtime/tracing"
	"github.com/ironplane/ironplane/pkg/secret"
)

// flushTimeout bounds sending the last spans.
const flushTimeout = 5 * time.Second

// trace runs work, and sends its traces to the configured OTLP receiver. The variables that OpenTelemetry reads by itself
// apply (OTEL_TRACES_SAMPLER, OTEL_RESOURCE_ATTRIBUTES, OTEL_BSP_…).
func trace(ctx context.Context, process string, c OperationsConfig, log *slog.Logger, work func(context.Context) error) error {
	if err := c.checkTraces(); err != nil {
		return err
	}
	if c.Traces == "" {
		return work(ctx)
	}
	to, err := parseEndpoint(c.Traces)
	if err != nil {
		return err
	}
	exporter, err := otlptrace.New(ctx, otlpClient{to.JoinPath("v1/traces").String(), c.TraceHeaders})
	if err != nil {
		return fmt.Errorf("prepare to send traces: %w", err)
	}
	attributes, err := resource.New(
		ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceNamespace("ironplane"), semconv.ServiceName(process)),
		resource.WithFromEnv(),
	)
	if err != nil {
		return fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces lost", "outage", "traces", "error", err) }))
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(attributes))
	tracing.Use(provider)
	err = work(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if lost := provider.Shutdown(ctx); lost != nil {
		log.Warn("traces lost", "outage", "traces", "error", lost)
	}
	return err
}

func parseEndpoint(text string) (*url.URL, error) {
	to, err := url.Parse(text)
	if err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" {
		return nil, errors.New("OTEL_EXPORTER_OTLP_ENDPOINT is not a URL such as http://collector:4318")
	}
	return to, nil
}

// checkTraces fails if the endpoint or the headers of traces are malformed.
func (c *OperationsConfig) checkTraces() error {
	var failed error
	if c.Traces != "" {
		_, failed = parseEndpoint(c.Traces)
	}
	_, malformed := parseTraceHeaders(c.TraceHeaders)
	return errors.Join(failed, malformed)
}

// ownHeaders are the headers that a request with spans has anyway.
var ownHeaders = []string{"Connection", "Content-Length", "Content-Type", "Host", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// parseTraceHeaders returns the headers in a text such as "api-key=secret,tenant=a%20b". Its errors quote neither names nor
// values, because a name may be a part of a value that lacks its percent-encoding.
func parseTraceHeaders(text secret.String) (http.Header, error) {
	parsed := http.Header{}
	for i, part := range strings.Split(text.Reveal(), ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, encoded, ok := strings.Cut(part, "=")
		name = http.CanonicalHeaderKey(strings.TrimSpace(name))
		value, err := url.PathUnescape(strings.TrimSpace(encoded))
		reason := ""
		switch {
		case !ok:
			reason = "is not name=value; a comma within a value is %2C"
		case !httpguts.ValidHeaderFieldName(name):
			reason = "does not begin with the name of a header"
		case slices.Contains(ownHeaders, name):
			reason = "is a header that cannot be set"
		case parsed.Values(name) != nil:
			reason = "has the name of an earlier one"
		case err != nil:
			reason = "has a malformed percent-encoding; a percent sign is %25"
		case !httpguts.ValidHeaderFieldValue(value):
			reason = "has a character that no header may have"
		default:
			parsed.Set(name, value)
			continue
		}
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS: header %d %s", i+1, reason)
	}
	return parsed, nil
}

// otlpClient sends spans by OTLP over HTTP. OpenTelemetry's own client depends on gRPC, which would double the size of each
// program.
type otlpClient struct {
	url     string
	headers secret.String // of OTEL_EXPORTER_OTLP_HEADERS
}

// otlpHTTP sends spans. It follows no redirect, because the headers are for one receiver.
var otlpHTTP = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

func (otlpClient) Start(context.Context) error { return nil }
func (otlpClient) Stop(context.Context) error  { return nil }

// UploadTraces sends the collected spans. Its context has a deadline.
func (c otlpClient) UploadTraces(ctx context.Context, spans []*otlp.ResourceSpans) error {
	body, err := proto.Marshal(&otlp.TracesData{ResourceSpans: spans}) // encoded like an ExportTraceServiceRequest
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("send spans: %w", err)
	}
	if r.Header, err = parseTraceHeaders(c.headers); err != nil {
		return fmt.Errorf("send spans: %w", err)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	response, err := otlpHTTP.Do(r)
	if err != nil {
		return fmt.Errorf("send spans: %w", err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)) // lets the connection be reused
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("send spans: %s answered %s", r.URL.Host, response.Status)
	}
	return nil
}
