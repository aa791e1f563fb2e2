package events

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/wake"
)

const (
	messagePath = "/internal/messages"
	// maxMessages is how many messages are given at once, and maxMessageBytes how many bytes of JSON one has at most.
	maxMessages     = 100
	maxMessageBytes = 32 << 10
)

// MessageKey is the owner of the key that messages to a service are sealed with.
func MessageKey(receiver string) string { return "messages to " + receiver }

// Message is what one service is to do because of what another did.
type Message struct {
	N         int64           `json:"n"` // its sender gives out messages in this order
	ID        string          `json:"id"`
	Kind      string          `json:"kind"`
	Content   json.RawMessage `json:"content"`
	Sealed    []byte          `json:"sealed,omitempty"`
	RequestID string          `json:"request_id,omitempty"`
	At        time.Time       `json:"at"`

	Secret secret.String `json:"-"` // what was sealed
}

func (m *Message) location() seal.Location {
	return seal.Location{Table: "message", Column: "sealed", ID: m.N}
}

// Outbox sends messages to one service.
type Outbox struct {
	Receiver string
	Box      *seal.Box // of MessageKey
}

// Send sends a message if the unit of work is committed. The secret, where there is one, nobody but the receiver reads.
func (o *Outbox) Send(ctx context.Context, tx *pg.Tx, kind string, content any, confidential secret.String) error {
	text, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("encode a message: %w", err)
	}
	if len(text) > maxMessageBytes || len(confidential.Reveal()) > maxMessageBytes {
		return fmt.Errorf("a message of the kind %s has more than %d bytes", kind, maxMessageBytes)
	}
	tx.Wake(MessageTopic(o.Receiver))
	m := Message{}
	if err := tx.QueryRow(ctx, "INSERT INTO message (receiver, kind, content, request_id) VALUES ($1, $2, $3, nullif($4, '')) RETURNING n",
		o.Receiver, kind, string(text), principal.From(ctx).RequestID).Scan(&m.N); err != nil {
		return fmt.Errorf("send a message to %s: %w", o.Receiver, err)
	}
	if confidential.IsZero() {
		return nil
	}
	_, err = tx.Exec(ctx, "UPDATE message SET sealed = $2 WHERE n = $1", m.N, o.Box.Seal(m.location(), confidential))
	return wrap("seal a message to "+o.Receiver, err)
}

// messageRequest is a receiver's request for the next messages. Those that it has taken are gone from then on.
type messageRequest struct {
	After    int64  `query:"after"`
	Received string `query:"taken" max:"4000"` // ids, with commas between
}

// messageResponse is the answer.
type messageResponse struct {
	Messages []Message `json:"messages"`
}

// MessageRoute gives a service's messages to their receivers.
func MessageRoute(db *pg.DB, receivers ...string) rest.Route {
	return rest.Read[messageRequest, messageResponse]{
		Path:  messagePath,
		Guard: guard.Peers(receivers...),
		Do: func(ctx context.Context, req messageRequest) (out messageResponse, err error) {
			receiver := principal.From(ctx).Peer
			if req.Received != "" {
				if err := db.InTx(ctx, func(tx *pg.Tx) error {
					tx.Unrecorded("its receiver has it")
					_, err := tx.Exec(ctx, "DELETE FROM message WHERE receiver = $1 AND id = ANY ($2::uuid[])", receiver, strings.Split(req.Received, ","))
					return err
				}); err != nil {
					return out, fmt.Errorf("forget messages that are taken: %w", err)
				}
			}
			rows, err := db.Query(
				ctx,
				"SELECT n, id::text, kind, content, sealed, coalesce(request_id, ''), at FROM message "+
					"WHERE receiver = $1 AND n > $2 ORDER BY n LIMIT $3",
				receiver,
				req.After,
				maxMessages,
			)
			if err != nil {
				return out, fmt.Errorf("read messages: %w", err)
			}
			var m Message
			size := 0
			_, err = pgx.ForEachRow(rows, []any{&m.N, &m.ID, &m.Kind, &m.Content, &m.Sealed, &m.RequestID, &m.At}, func() error {
				if size += len(m.Content) + len(m.Sealed); len(out.Messages) == 0 || size <= maxPageBytes {
					out.Messages = append(out.Messages, m)
				}
				m = Message{}
				return nil
			})
			return out, err
		},
	}
}

// MessageHandler does what a message is for, in the unit of work that notes it as taken.
type MessageHandler func(context.Context, *pg.Tx, Message) error

// Inbox takes the messages of one service.
type Inbox struct {
	Source   string
	Box      *seal.Box                 // of MessageKey
	Handlers map[string]MessageHandler // by the messages' kinds

	Interval time.Duration // how often it asks for messages that nobody has told of; 0: wake.Interval
}

// MessageTopic is what a service wakes a receiver with when it has sent messages to it.
func MessageTopic(receiver string) string { return "messages to " + receiver }

// Run takes what there is, and again whenever it is woken, until ctx ends. A message that cannot be taken stays with its
// sender, and is in the way of no other.
func (i *Inbox) Run(ctx context.Context, db *pg.DB, peers mesh.Peers, woken <-chan struct{}) error {
	tick := time.NewTicker(cmp.Or(i.Interval, wake.Interval))
	defer tick.Stop()
	for {
		if err := i.drain(ctx, db, peers); err != nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-woken:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// drain takes all messages that there are.
func (i *Inbox) drain(ctx context.Context, db *pg.DB, peers mesh.Peers) error {
	var failed error
	after, received := int64(0), []string(nil)
	for {
		asking, cancel := peers.Limit(ctx, pullTimeout)
		var out messageResponse
		query := url.Values{"after": {strconv.FormatInt(after, 10)}, "taken": {strings.Join(received, ",")}}
		err := peers.Ask(asking, i.Source, messagePath+"?"+query.Encode(), &out)
		cancel()
		if err != nil {
			return errors.Join(failed, fmt.Errorf("ask %s for messages: %w", i.Source, err))
		}
		if len(out.Messages) == 0 {
			return failed
		}
		received = nil
		for _, m := range out.Messages {
			after = m.N
			if err := i.handle(ctx, db, m); err != nil {
				failed = errors.Join(failed, &RequestError{m.RequestID, fmt.Errorf("take message %s of %s (%s): %w", m.ID, i.Source, m.Kind, err)})
				continue
			}
			received = append(received, m.ID)
		}
	}
}

func (i *Inbox) handle(ctx context.Context, db *pg.DB, m Message) (err error) {
	handler := i.Handlers[m.Kind]
	if handler == nil {
		return errors.New("nobody here takes such messages: is the sender a newer version?")
	}
	if len(m.Sealed) > 0 {
		if m.Secret, err = i.Box.Open(m.location(), m.Sealed); err != nil {
			return err
		}
	}
	ctx = principal.With(ctx, &principal.Call{RequestID: m.RequestID})
	return db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what led to it is recorded where it was done")
		done, err := tx.Exec(ctx, "INSERT INTO message_taken (id) VALUES ($1) ON CONFLICT DO NOTHING", m.ID)
		if err != nil || done.RowsAffected() == 0 {
			return wrap("note a message as taken", err)
		}
		return handler(ctx, tx, m)
	})
}
