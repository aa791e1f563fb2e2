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

// drainTime is how long the log may take to catch up with a round.
const drainTime = 5 * time.Minute

// createScript inserts what the service inserts, in one transaction: the row and the record of the change, this into
// a table that looks the same and that nobody logs.
const createScript = `\set speed random(1, 1000000)
BEGIN;
INSERT INTO port_speed (name, billing_id, speed) VALUES ('bench ' || gen_random_uuid(), NULL, :speed);
INSERT INTO unlogged_change (type, targets, after, actor_url, actor_name, actor_key, ip, request_id)
	VALUES ('port-speed.created', '[{"type": "port-speed", "id": 1, "name": "bench", "version": 1}]',
	'{"id": 1, "name": "bench", "speed": 1000, "switchPortCount": false}', '/admin/1', 'admin', 1, '127.0.0.1', '2FKD7SL76CB2RT3OS2HZTOB23Q');
COMMIT;
`

// createPortSpeed asks for a new one.
var createPortSpeed = question{
	line: func(request []byte, _ int64) []byte { return append(request, "POST /port-speed"...) },
	body: func(request []byte, speed int64) []byte {
		request = append(append(append(request, `{"name":"bench `...), rand.Text()...), `","speed":`...)
		return append(strconv.AppendInt(request, speed, 10), '}')
	},
	right: func(body []byte, speed int64) error {
		if !bytes.Contains(body, []byte(`"speed":`+strconv.FormatInt(speed, 10)+`,`)) {
			return fmt.Errorf("the answer is another one: %s", bytes.TrimSpace(body))
		}
		return nil
	},
	most: 1_000_000,
}

// create lets the contestants take turns at creating. What the product created counts once it is logged.
func (l *lineup) create(ctx context.Context) error {
	for _, sql := range []string{
		"CREATE TABLE unlogged_change (LIKE change INCLUDING ALL)",
		"SELECT setval(pg_get_serial_sequence('port_speed', 'id'), max(id)) FROM port_speed", // they were filled in with their ids
	} {
		if err := l.database.execute(ctx, sql); err != nil {
			return err
		}
	}
	var contestants []*contestant
	if l.pgbench != "" {
		p := pgbench{program: l.pgbench, script: createScript, database: l.database, folder: l.folder, connections: l.options.connections}
		contestants = append(contestants, &contestant{name: pgbenchName, read: p.read})
	}
	creating := callers{to: l.reached[gatewayName], connections: l.options.connections, question: createPortSpeed}
	contestants = append(contestants, &contestant{name: gatewayName, read: func(ctx context.Context, duration time.Duration) (round, error) {
		began := time.Now()
		done, err := creating.read(ctx, duration)
		if err != nil {
			return done, err
		}
		err = l.database.drained(ctx)
		done.rate = float64(done.reads) / time.Since(began).Seconds()
		return done, err
	}})
	if err := l.database.drained(ctx); err != nil { // of what was changed before
		return err
	}
	fmt.Fprintf(
		l.screen,
		"\nA new port speed, until it is logged; %d connections; rounds of %v, %d of them.\n\n",
		l.options.connections,
		l.options.duration,
		l.options.rounds,
	)
	if err := takeTurns(ctx, l.options, contestants, l.screen); err != nil {
		return err
	}
	report(contestants, []goal{{gatewayName, pgbenchName, 0.3}}, l.screen)
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

// drained waits until the log has what was changed.
func (db *database) drained(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
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
					return errors.New("the log does not catch up")
				}
			}
		}
	}
	return nil
}
