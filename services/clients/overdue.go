package clients

import (
	"context"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// OverdueReport says what became of the billing ids of overdue clients.
type OverdueReport struct {
	Suspended        []OverdueClient `json:"suspended" doc:"The clients that were suspended now."`
	AlreadySuspended []OverdueClient `json:"already_suspended" doc:"The clients that the caller had suspended before."`
	Ignored          []OverdueClient `json:"ignored" doc:"The clients that were not suspended because of billing.ignoreAutoSuspend."`
	Unknown          []int64         `json:"unknown" doc:"The billing ids that no client of the integration has."`
}

// OverdueClient is a client of an OverdueReport.
type OverdueClient struct {
	ID        int64  `json:"id" db:"id" doc:"The client's id."`
	Name      string `json:"name" db:"name" doc:"The first and last name."`
	BillingID int64  `json:"billing_id" db:"billing_id" doc:"The id that the client has in its integration."`
}

type overdueRequest struct {
	Body rest.Body[overdueBody]
}

type overdueBody struct {
	BillingIDs  []int64     `json:"billing_ids" required:"create" example:"[4711]" doc:"The billing ids of the clients that have not paid, at most 1,000."`
	Integration *rest.RefID `json:"integration" alias:"integration_id" doc:"The integration whose billing ids these are. An admin has to name it. An integration can name only itself."`
}

func (s *Service) overdueRoute() rest.Route {
	return rest.Mutation[overdueRequest, OverdueReport]{
		Method:    http.MethodPost,
		Path:      "/client/suspend-overdue",
		Guard:     guard.Has(permission.UsersClients),
		Name:      "suspendOverdueClients",
		Summary:   "Suspend the clients that have not paid",
		Extension: true,
		Doc: "Clients with `billing.ignoreAutoSuspend` are left alone. The others are suspended as by `POST /client/{client_id}/suspend`, " +
			"and the answer reports on each billing id.",
		Effect:  rest.Effect{Logs: rest.LogsEach, Retry: rest.RetrySafe},
		Example: `{"billing_ids": [4711], "integration": {"id": 1}}`,
		Do:      s.suspendOverdue,
	}
}

// suspendOverdue suspends an integration's clients with these billing ids.
func (s *Service) suspendOverdue(ctx context.Context, tx *pg.Tx, req overdueRequest) (report OverdueReport, err error) {
	body, err := req.Body.New()
	if err != nil {
		return report, err
	}
	integration, by, err := overdueOf(ctx, body)
	if err != nil {
		return report, req.Body.MapError(err)
	}
	ids := body.BillingIDs
	rows, err := tx.Query(ctx, `
		SELECT id, name, billing_id, ignore_auto_suspend FROM client
		WHERE integration_id = $1 AND billing_id = ANY ($2) ORDER BY id FOR UPDATE`, integration, ids)
	if err != nil {
		return report, fmt.Errorf("find overdue clients: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		OverdueClient

		Ignored bool
	}])
	if err != nil {
		return report, fmt.Errorf("find overdue clients: %w", err)
	}
	report = OverdueReport{Suspended: []OverdueClient{}, AlreadySuspended: []OverdueClient{}, Ignored: []OverdueClient{}, Unknown: []int64{}}
	known := map[int64]bool{}
	for _, c := range found {
		known[c.BillingID] = true
		if c.Ignored {
			report.Ignored = append(report.Ignored, c.OverdueClient)
			continue
		}
		changed, err := s.changeSuspension(ctx, tx, c.ID, by, true)
		if err == nil && changed {
			err = raiseVersion(ctx, tx, c.ID)
		}
		if err != nil {
			return report, err
		}
		if changed {
			report.Suspended = append(report.Suspended, c.OverdueClient)
		} else {
			report.AlreadySuspended = append(report.AlreadySuspended, c.OverdueClient)
		}
	}
	for _, id := range ids {
		if !known[id] {
			known[id] = true
			report.Unknown = append(report.Unknown, id)
		}
	}
	tx.Unrecorded("no client is suspended by this")
	return report, nil
}

// overdueOf returns the integration whose billing ids a body has, and as whom the caller suspends.
func overdueOf(ctx context.Context, body *overdueBody) (integration int64, by suspender, err error) {
	caller, isIntegration := callingIntegration(ctx)
	switch {
	case isIntegration && body.Integration != nil && int64(*body.Integration) != caller:
		return 0, by, problem.New(problem.Forbidden, "An integration can suspend only its own clients.")
	case isIntegration:
		return caller, suspender{kind: "integration"}, nil
	case body.Integration == nil:
		return 0, by, problem.Member("/integration", "required", "is required: name the integration whose billing ids these are")
	}
	return int64(*body.Integration), suspender{kind: "admin"}, nil
}
