package importer

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ironplane/ironplane/deploy/cli/importer/source"
	"github.com/ironplane/ironplane/pkg/client"
)

// A request creates at most this many entities, and its body has at most this many bytes. The API accepts 10,000 and 1 MiB.
const (
	maxRows  = 1000
	maxBytes = 900_000
)

// batch is a request that creates entities: all of them, or none.
type batch struct {
	number int
	rows   []int // indexes of planned entities
}

// createEntities creates the missing entities. After the first error it starts no more requests, and waits for those that
// are in progress.
func (t *transfer) createEntities(ctx context.Context) error {
	t.progress.begin("creating entities", len(t.plan.Entities))
	var batches []batch
	var rows []int
	for i := range t.plan.Entities {
		switch {
		case t.entities[i].state != notTried:
			t.progress.add(1)
			continue
		case t.isDryRun:
			t.entities[i].state = created
			continue
		case t.groupIDs[t.plan.Entities[i].Group] == 0:
			t.entities[i] = result{state: refused, code: "group", detail: "the API refused its group " + t.plan.Entities[i].Group}
			continue
		}
		rows = append(rows, i)
		if next := i + 1; len(rows) == maxRows || next == len(t.plan.Entities) || t.plan.Entities[next].Group != t.plan.Entities[i].Group {
			batches, rows = append(batches, batch{len(batches), rows}), nil
		}
	}
	if rows != nil {
		batches = append(batches, batch{len(batches), rows})
	}
	err := each(ctx, batches, t.createBatch)
	return errors.Join(err, t.recheck(ctx))
}

// each calls do for all items, several at a time. After the first error it starts no more, and waits for the others.
func each[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	starting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	next := make(chan T)
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for item := range next {
				if err := do(starting, item); err != nil {
					stop(err)
				}
			}
		})
	}
	for _, item := range items {
		select {
		case next <- item:
		case <-starting.Done():
		}
		if starting.Err() != nil {
			break
		}
	}
	close(next)
	working.Wait()
	if starting.Err() != nil {
		return context.Cause(starting)
	}
	return nil
}

// createBatch creates the entities of a batch. The API refuses a batch because of one row. Then the row is left out, and
// the rest is sent again. It returns an error if the import must stop.
func (t *transfer) createBatch(ctx context.Context, b batch) error {
	for attempt := 0; len(b.rows) > 0; attempt++ {
		body, err := t.writeCSV(b.rows)
		if err != nil {
			return err
		}
		if len(body) > maxBytes {
			half := len(b.rows) / 2
			return errors.Join(t.createBatch(ctx, batch{b.number, b.rows[:half]}), t.createBatch(ctx, batch{b.number, b.rows[half:]}))
		}
		key := t.idempotencyKey("entities-"+strconv.Itoa(b.rows[0]), attempt)
		_, err = t.api.Entities.ImportCSV(ctx, bytes.NewReader(body), client.IdempotencyKey(key))
		if err != nil && err == context.Cause(ctx) {
			return nil // another request's error stopped the import before this one was sent
		}
		refusal, isRefusal := errors.AsType[*client.Error](err)
		switch {
		case err == nil:
			t.set(b.rows, result{state: created})
			t.progress.add(len(b.rows))
			return nil
		case errors.Is(err, client.ErrUnknownOutcome):
			t.set(b.rows, result{state: unknown})
			return t.explainBatch(b, err)
		case !isRefusal || !errors.Is(err, client.ErrInvalid):
			return t.explainBatch(b, err)
		}
		rest := t.refuseRows(b.rows, refusal)
		if len(rest) == len(b.rows) { // no row is named
			return t.explainBatch(b, err)
		}
		b.rows = rest
	}
	return nil
}

func (t *transfer) explainBatch(b batch, err error) error {
	first, last := &t.plan.Entities[b.rows[0]], &t.plan.Entities[b.rows[len(b.rows)-1]]
	return fmt.Errorf("create %d entities from %s to %s in group %s: %w", len(b.rows), first.Address(), last.Address(), first.Group, err)
}

// set gives all rows the same result.
func (t *transfer) set(rows []int, r result) {
	for _, i := range rows {
		t.entities[i] = r
	}
}

// refuseRows marks the rows that the API refused, and returns the others. A pointer such as /3/v4/address names the line
// of the CSV file. The first row is in line 2, and each row in one line.
func (t *transfer) refuseRows(rows []int, refusal *client.Error) (rest []int) {
	bad := map[int]bool{}
	for _, member := range refusal.Fields {
		line, pointer, _ := strings.Cut(strings.TrimPrefix(member.Pointer, "/"), "/")
		n, err := strconv.Atoi(line)
		if err != nil || n < 2 || n-2 >= len(rows) {
			continue
		}
		bad[n-2] = true
		t.entities[rows[n-2]] = result{state: refused, code: member.Code, detail: "/" + pointer + " " + member.Message}
	}
	for n, i := range rows {
		if !bad[n] {
			rest = append(rest, i)
		}
	}
	return rest
}

// recheck lists the entities again, if it is unclear what became of some. A response may have been lost. An earlier run that
// was killed may have left a request that created entities after this run had listed them.
func (t *transfer) recheck(ctx context.Context) error {
	isUnclear := func(r result) bool { return r.state == unknown || r.code == "overlaps" }
	if t.isDryRun || ctx.Err() != nil || !slices.ContainsFunc(t.entities, isUnclear) {
		return nil
	}
	if err := t.listEntities(ctx); err != nil {
		return err
	}
	for i, r := range t.entities {
		e := &t.plan.Entities[i]
		found, ok := t.found.overlapping(t.groupIDs[e.Group], e.Span)
		if !isUnclear(r) || !ok || found.span != e.Span {
			continue
		}
		if t.entities[i] = e.compare(found.entity, t.clientIDs); r.state == unknown && t.entities[i].state == existing {
			t.entities[i].state = created
		}
	}
	return nil
}

// csvColumns are the members of an entity that an import sets.
var csvColumns = []string{"group.id", "full_ip", "nickname", "vlan", "gateway", "subnet_mask", "v6_gateway", "owner.id", "status", "note"}

// writeCSV returns the body that creates entities. An empty cell is not sent.
func (t *transfer) writeCSV(rows []int) ([]byte, error) {
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	err := w.Write(csvColumns)
	for _, i := range rows {
		err = errors.Join(err, w.Write(t.row(&t.plan.Entities[i])))
	}
	w.Flush()
	return text.Bytes(), errors.Join(err, w.Error())
}

func (t *transfer) row(e *Entity) []string {
	var gateway, v6Gateway, owner, status string
	if e.Gateway.IsValid() && e.Gateway.Is4() {
		gateway = e.Gateway.String()
	} else if e.Gateway.IsValid() {
		v6Gateway = e.Gateway.String()
	}
	if e.Owner != (source.Customer{}) {
		owner = strconv.FormatInt(t.clientIDs[e.Owner.Email], 10)
	} else if e.Status == reserved {
		status = reserved
	}
	return []string{
		strconv.FormatInt(t.groupIDs[e.Group], 10), e.Address(), quote(e.Nickname), vlanText(int64(e.VLAN)), gateway, e.subnetMask(), v6Gateway,
		owner, status, quote(e.Note),
	}
}

// quote doubles a leading quote, since the API takes one off.
func quote(text string) string {
	if strings.HasPrefix(text, "'") {
		return "'" + text
	}
	return text
}

// subnetMask returns the mask of an IPv4 entity. It is empty for IPv6, and if the subnet is unknown.
func (e *Entity) subnetMask() string {
	if !e.Subnet.IsValid() || e.Subnet.Addr().Is6() {
		return ""
	}
	return net.IP(net.CIDRMask(e.Subnet.Bits(), 32)).String()
}
