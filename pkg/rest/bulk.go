package rest

import (
	"context"
	"net/http"

	"github.com/go-kit/kit/endpoint"

	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/problem"
)

// Bulk is the answer to a request that made many items.
type Bulk struct {
	Count int   `json:"count" example:"2"`
	First int64 `json:"first" example:"1" doc:"the first item's id"`
	Last  int64 `json:"last" example:"2" doc:"the last item's id"`
}

// MaxTargets is how many of a bulk change's items stand in its record.
const MaxTargets = 100

// createRoute makes one item of a JSON body, or many of a CSV body: all of them or none.
type createRoute[V, B any] struct {
	Mutation[NewItem[B], V]
	resource Resource[V, B]
	view     *pg.View[V]
}

type sentRows[B any] struct {
	rows  []*B
	lines []int
}

func (c createRoute[V, B]) operation() *operation {
	o := c.Mutation.operation()
	o.csv = &alternative{
		decode: func(r *http.Request) (any, error) {
			text, err := readBody(r)
			if err != nil {
				return nil, err
			}
			rows, lines, err := parseCSV[B](text)
			return sentRows[B]{rows, lines}, err
		},
		endpoint: func(db *pg.DB) endpoint.Endpoint {
			return changing(db, always, func(ctx context.Context, tx *pg.Tx, request any) (any, error) {
				return c.many(ctx, tx, request.(sentRows[B]))
			})
		},
	}
	return o
}

func (c createRoute[V, B]) many(ctx context.Context, tx *pg.Tx, sent sentRows[B]) (Bulk, error) {
	if len(sent.rows) == 0 {
		return Bulk{}, problem.New(problem.BadRequest, "The body has no row but the first, which names the columns.")
	}
	if err := c.resource.Lock(ctx, tx, sent.rows...); err != nil {
		return Bulk{}, err
	}
	answer := Bulk{Count: len(sent.rows)}
	var targets []pg.Target
	for i, body := range sent.rows {
		id, err := c.resource.Insert(ctx, tx, body)
		if err != nil {
			if f := problem.From(pg.Explain(err)); f.Kind == problem.Invalid {
				return answer, atLine(f, sent.lines[i], nil).Err()
			}
			return answer, err
		}
		if i == 0 {
			answer.First = id
		}
		answer.Last = id
		if len(targets) < MaxTargets {
			made, err := c.view.Get(ctx, tx, id)
			if err != nil {
				return answer, err
			}
			targets = append(targets, c.resource.target(&made))
		}
	}
	tx.Record(pg.Change{Type: c.resource.kind() + ".created", Targets: targets, After: answer})
	return answer, nil
}
