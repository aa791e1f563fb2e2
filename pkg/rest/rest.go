// Package rest is what services declare their API with: a Resource, which is the five operations on a collection, and List,
// Read, Mutation and Raw, which are one operation each. A Section puts them together in the API document.
//
// The packages below it do the work: body decodes what is sent, route serves, and apidoc describes.
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

// What declarations are made of, under the one name that services import.
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
)

// What the log gets of a change, and what becomes of one that is sent again.
const (
	LogsItem     = route.LogsItem
	LogsEach     = route.LogsEach
	LogsSummary  = route.LogsSummary
	RetrySafe    = route.RetrySafe
	RetryRepeats = route.RetryRepeats
	RetryRefused = route.RetryRefused
)

// NewHandler serves a service's routes. It panics where they do not fit together.
func NewHandler(service string, db *pg.DB, log *slog.Logger, routes []Route) http.Handler {
	own := untyped(routes)
	route.CheckPaths(db, own)
	return route.NewHandler(db, log, own, apidoc.Handler(apidoc.Document(service, own)))
}

// Document describes a service's routes but the internal ones. It panics where two operations have one name.
func Document(service string, routes []Route) *openapi.Document {
	return apidoc.Document(service, untyped(routes))
}

// Operations are those of the routes, the internal ones among them.
func Operations(routes []Route) []Operation {
	all := make([]Operation, len(routes))
	for i, r := range untyped(routes) {
		all[i] = r.Operation
	}
	return all
}

// Check fails where the schema lacks a table, a view or a column that a route needs.
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
