// Package rest declares the API of a service. A Resource has the five operations on a collection. List, Read, Mutation and Raw
// are one operation each. A Section groups operations in the API document.
//
// The packages below do the work: body decodes requests, route serves them, and apidoc describes them.
package rest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest/apidoc"
	"github.com/ironplane/ironplane/pkg/rest/body"
	"github.com/ironplane/ironplane/pkg/rest/openapi"
	"github.com/ironplane/ironplane/pkg/rest/route"
)

// The types that declarations use, so that services import one package.
type (
	Body[B any]            = body.Body[B]
	Composite              = body.Composite
	Ref                    = problem.Ref
	RefID                  = body.RefID
	RefOrName              = body.RefOrName
	Timestamp              = body.Timestamp
	Operation              = route.Operation
	Effect                 = route.Effect
	Retry                  = route.Retry
	Versioned              = route.Versioned
	Single[V route.Tagged] = route.Single[V]
	IfMatch                = route.IfMatch
	Message                = route.Message
	Bulk                   = route.Bulk
	Import                 = route.Import
)

// What a change adds to the log, and what a repeated request does.
const (
	LogsItem     = route.LogsItem
	LogsEach     = route.LogsEach
	LogsSummary  = route.LogsSummary
	RetrySafe    = route.RetrySafe
	RetryRepeats = route.RetryRepeats
	RetryRefused = route.RetryRefused
)

// NewHandler returns a handler for the routes of a service and its API document. It panics if the declarations contradict each
// other.
func NewHandler(service string, db *pg.DB, log *slog.Logger, routes []Route) http.Handler {
	own := untyped(routes)
	route.CheckPaths(db, own)
	return route.NewHandler(db, log, own, apidoc.Handler(apidoc.Document(service, own)))
}

// Document describes a service's routes except the internal ones. It panics if two operations have the same name.
func Document(service string, routes []Route) *openapi.Document {
	return apidoc.Document(service, untyped(routes))
}

// Operations returns the operations of the routes, including internal ones.
func Operations(routes []Route) []Operation {
	all := make([]Operation, len(routes))
	for i, r := range untyped(routes) {
		all[i] = r.Operation
	}
	return all
}

// Check returns an error if the database schema lacks a table, a view or a column that a route needs.
func Check(ctx context.Context, db *pg.DB, routes []Route) error {
	for _, r := range untyped(routes) {
		for _, s := range r.Statements {
			if err := db.Parse(ctx, s.SQL); err != nil {
				return fmt.Errorf("rest: %s: %s: %w", s.Owner, s.Field, err)
			}
		}
	}
	return nil
}

func untyped(routes []Route) []*route.Route {
	all := make([]*route.Route, len(routes))
	for i, r := range routes {
		all[i] = r.route()
	}
	return all
}
