package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/services/network"
	"github.com/ironplane/ironplane/services/system"
)

// drainTimeout is the limit for the log to catch up after a round.
const drainTimeout = 5 * time.Minute

// createScript inserts the same rows as the service in one transaction: the port speed and the record of the change. The record
// goes to a table of the same form that the log does not read.
const createScript = `\set speed random(1, 1000000)
BEGIN;
INSERT INTO port_speed (name, billing_id, speed) VALUES ('bench ' || gen_random_uuid(), NULL, :speed);
INSERT INTO unlogged_change (type, targets, after, actor_url, actor_name, actor_key, ip, request_id)
	VALUES ('port-speed.created', '[{"type": "port-speed", "id": 1, "name": "bench", "version": 1}]',
	'{"id": 1, "name": "bench", "speed": 1000, "switchPortCount": false}', '/admin/1', 'admin', 1, '127.0.0.1', '2FKD7SL76CB2RT3OS2HZTOB23Q');
COMMIT;
`

// createOperation creates a port speed.
var createOperation = operation{
	line: func(request []byte, _ int64) []byte { return append(request, "POST /port-speed"...) },
	body: func(request []byte, speed int64) []byte {
		request = append(append(append(request, `{"name":"bench `...), rand.Text()...), `","speed":`...)
		return append(strconv.AppendInt(request, speed, 10), '}')
	},
	check: func(body []byte, speed int64) error {
		if !bytes.Contains(body, []byte(`"speed":`+strconv.FormatInt(speed, 10)+`,`)) {
			return fmt.Errorf("got the response of another request: %s", bytes.TrimSpace(body))
		}
		return nil
	},
	maxNumber: 1_000_000,
}

// create lets the candidates create port speeds in turn. The product's round ends once all of them are in the log.
func (l *suite) create(ctx context.Context) error {
	for _, sql := range []string{
		"CREATE TABLE unlogged_change (LIKE change INCLUDING ALL)",
		"SELECT setval(pg_get_serial_sequence('port_speed', 'id'), max(id)) FROM port_speed", // the rows were copied with their ids
	} {
		if err := l.database.execute(ctx, sql); err != nil {
			return err
		}
	}
	var candidates []*candidate
	if l.pgbench != "" {
		p := pgbench{program: l.pgbench, script: createScript, database: l.database, folder: l.folder, connections: l.options.connections}
		candidates = append(candidates, &candidate{name: pgbenchName, read: p.read})
	}
	creating := callers{to: l.endpoints[gatewayName], connections: l.options.connections, operation: createOperation}
	candidates = append(candidates, &candidate{name: gatewayName, read: func(ctx context.Context, duration time.Duration) (round, error) {
		began := time.Now()
		done, err := creating.read(ctx, duration)
		if err != nil {
			return done, err
		}
		err = l.database.awaitLog(ctx)
		done.rate = float64(done.reads) / time.Since(began).Seconds()
		return done, err
	}})
	if err := l.database.awaitLog(ctx); err != nil { // of earlier changes
		return err
	}
	fmt.Fprintf(
		l.screen,
		"\nCreating a port speed, until it is in the log; %d connections; rounds of %v, %d of them.\n\n",
		l.options.connections,
		l.options.duration,
		l.options.rounds,
	)
	if err := takeTurns(ctx, l.options, candidates, l.screen); err != nil {
		return err
	}
	report(candidates, []goal{{gatewayName, pgbenchName, 0.3}}, l.screen)
	return nil
}

func (db *database) execute(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, db.urls[network.Name])
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql)
	return err
}

// awaitLog waits until the log has all changes.
func (db *database) awaitLog(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, db.adminURL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, name := range product.Names() {
		for behind := true; behind; {
			err := conn.QueryRow(ctx, fmt.Sprintf(`SELECT EXISTS (SELECT FROM %[1]s.change WHERE seq IS NULL)
				OR (SELECT last FROM %[1]s.sequencer) <> (SELECT coalesce(min(seq), 0) FROM %[2]s.consumer WHERE source = $1)`, name, system.Name), name).Scan(&behind)
			if err != nil {
				return fmt.Errorf("wait for the log: %w", err)
			}
			if behind {
				select {
				case <-time.After(time.Millisecond):
				case <-ctx.Done():
					return errors.New("the log did not catch up in time")
				}
			}
		}
	}
	return nil
}
