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
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/ironplane/ironplane/pkg/runtime/tracing"
)

// flushTimeout bounds sending the last spans.
const flushTimeout = 5 * time.Second

// trace runs work, and sends its traces to the OTLP receiver with the base URL endpoint: http://collector:4318. The
// variables that OpenTelemetry reads by itself apply (OTEL_TRACES_SAMPLER, OTEL_RESOURCE_ATTRIBUTES, OTEL_BSP_…).
func trace(ctx context.Context, process, endpoint string, log *slog.Logger, work func(context.Context) error) error {
	if endpoint == "" {
		return work(ctx)
	}
	to, err := parseEndpoint(endpoint)
	if err != nil {
		return err
	}
	exporter, err := otlptrace.New(ctx, otlpClient{to.JoinPath("v1/traces").String()})
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

// otlpClient sends spans by OTLP over HTTP. OpenTelemetry's own client depends on gRPC, which would double the size of each
// program.
type otlpClient struct{ url string }

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
	r.Header.Set("Content-Type", "application/x-protobuf")
	response, err := http.DefaultClient.Do(r)
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
