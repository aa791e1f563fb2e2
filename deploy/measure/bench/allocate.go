package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/services/network"
)

const (
	// allocators is the number of callers that allocate at the same time.
	allocators = 64
	// seriesTimeout is the limit for creating many entities.
	seriesTimeout = 2 * time.Minute
)

// allocateScript has the same statement as the service.
const allocateScript = `\set owner random(1, 1000000)
WITH free AS MATERIALIZED (
	SELECT f.entity_id, f.v4_first AS first FROM ip_free f JOIN ip_entity e ON e.id = f.entity_id
	WHERE f.group_id = 1 AND f.v4_first IS NOT NULL ORDER BY f.v4_first LIMIT 1
	FOR NO KEY UPDATE OF e SKIP LOCKED FOR UPDATE OF f SKIP LOCKED),
assigned AS (
	INSERT INTO ip_assignment (entity_id, group_id, owner_id) SELECT entity_id, 1, :owner FROM free),
edited AS (
	UPDATE ip_entity e SET version = version + 1 FROM free WHERE e.id = free.entity_id)
SELECT entity_id FROM free ORDER BY first;
`

// allocateOperation allocates the lowest free address for one of many owners.
var allocateOperation = operation{
	line: func(request []byte, _ int64) []byte { return append(request, "POST /group/1/allocate"...) },
	body: func(request []byte, owner int64) []byte {
		return append(strconv.AppendInt(append(request, `{"owner":{"id":`...), owner, 10), "}}"...)
	},
	check: func(body []byte, owner int64) error {
		if !bytes.Contains(body, []byte(`"owner":{"id":`+strconv.FormatInt(owner, 10)+`,`)) {
			return fmt.Errorf("got the response of another request: %s", bytes.TrimSpace(body))
		}
		return nil
	},
	maxNumber: 1_000_000,
}

// allocate fills a group, and lets the candidates allocate from it in turn.
func (l *suite) allocate(ctx context.Context) error {
	gateway := l.endpoints[gatewayName]
	if err := post(ctx, gateway, "/group", `{"name": "Bench"}`); err != nil {
		return err
	}
	if err := l.database.run(
		ctx,
		"INSERT INTO ref (type, id, name, version) SELECT 'client', n, 'Client ' || n, 1 FROM generate_series(1, 1000000) n",
		"VACUUM (ANALYZE) ref",
	); err != nil {
		return fmt.Errorf("create the clients: %w", err)
	}
	prefix, began := fmt.Sprint("10.0.0.0/", l.options.prefix), time.Now()
	if err := post(ctx, gateway, "/group/1/entity/bulk", `{"prefix": "`+prefix+`", "all": true}`); err != nil {
		return err
	}
	fmt.Fprintf(
		l.screen,
		"\nCreating %d IP entities of a /%d took %v.\n",
		1<<(32-l.options.prefix),
		l.options.prefix,
		time.Since(began).Round(10*time.Millisecond),
	)
	var candidates []*candidate
	if l.pgbench != "" {
		p := pgbench{program: l.pgbench, script: allocateScript, database: l.database, folder: l.folder, connections: allocators}
		candidates = append(candidates, &candidate{name: pgbenchName, read: p.read})
	}
	for _, name := range []string{serviceName, gatewayName, splitName} {
		candidates = append(
			candidates,
			&candidate{name: name, read: callers{to: l.endpoints[name], connections: allocators, operation: allocateOperation}.read},
		)
	}
	for _, c := range candidates {
		read := c.read
		c.read = func(ctx context.Context, duration time.Duration) (round, error) {
			done, err := read(ctx, duration)
			return done, errors.Join(err, l.database.releaseAll(ctx))
		}
	}
	fmt.Fprintf(
		l.screen,
		"\nThe lowest free address of a group; %d connections; rounds of %v, %d of them.\n\n",
		allocators,
		l.options.duration,
		l.options.rounds,
	)
	if err := takeTurns(ctx, l.options, candidates, l.screen); err != nil {
		return err
	}
	report(candidates, []goal{{serviceName, pgbenchName, 0.3}, {gatewayName, pgbenchName, 0.3}}, l.screen)
	return nil
}

// post sends a request with a body, and returns an error unless the status is 200.
func post(ctx context.Context, to endpoint, path, body string) error {
	ctx, cancel := context.WithTimeout(ctx, seriesTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to.Address+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+to.Key)
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxBodyBytes))
		return fmt.Errorf("POST %s: got the status %d: %s", path, response.StatusCode, text)
	}
	return nil
}

// releaseAll releases all addresses for the next round. It fails if the round has allocated all of them.
func (db *database) releaseAll(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, db.urls[network.Name])
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var left bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM ip_free)").Scan(&left); err != nil {
		return err
	}
	if !left {
		return errors.New("no free address is left, so the round measured nothing: use a shorter -duration or a larger -prefix")
	}
	return db.run(
		ctx,
		"DELETE FROM ip_assignment",
		"DELETE FROM ip_group_server_delta",
		"VACUUM (ANALYZE) ip_assignment",
		"VACUUM (ANALYZE) ip_free",
		"VACUUM (ANALYZE) ip_entity",
	)
}

// run runs statements in the network service's schema.
func (db *database) run(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, db.urls[network.Name])
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
