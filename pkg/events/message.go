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
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/wake"
)

const (
	messagePath = "/internal/messages"
	// maxMessages is how many messages a response has at most. maxMessageBytes is the maximal length of a message's
	// JSON.
	maxMessages     = 100
	maxMessageBytes = 32 << 10
)

// MessageKey returns the owner of the key that seals messages to a service.
func MessageKey(receiver string) string { return "messages to " + receiver }

// Message tells one service what to do because of a change in another.
type Message struct {
	N         int64           `json:"n"` // the sender's messages are in this order
	ID        string          `json:"id"`
	Kind      string          `json:"kind"`
	Content   json.RawMessage `json:"content"`
	Sealed    []byte          `json:"sealed,omitempty"`
	RequestID string          `json:"request_id,omitempty"`
	At        time.Time       `json:"at"`

	Traceparent string `json:"traceparent,omitempty"` // the span that sent the message; empty: it was not traced

	Secret secret.String `json:"-"` // the content of Sealed
}

func (m *Message) location() seal.Location {
	return seal.Location{Table: "message", Column: "sealed", ID: m.N}
}

// Outbox sends messages to one service.
type Outbox struct {
	Receiver string
	Box      *seal.Box // of MessageKey
}

// Send sends a message if the unit of work commits. Only the receiver can read the secret, if there is one.
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
	err = tx.QueryRow(ctx, "INSERT INTO message (receiver, kind, content, request_id, traceparent) "+
		"VALUES ($1, $2, $3, nullif($4, ''), nullif($5, '')) RETURNING n",
		o.Receiver, kind, string(text), principal.FromContext(ctx).RequestID, tracing.Traceparent(ctx)).Scan(&m.N)
	if err != nil {
		return fmt.Errorf("send a message to %s: %w", o.Receiver, err)
	}
	if confidential.IsZero() {
		return nil
	}
	_, err = tx.Exec(ctx, "UPDATE message SET sealed = $2 WHERE n = $1", m.N, o.Box.Seal(m.location(), confidential))
	return wrap("seal a message to "+o.Receiver, err)
}

// messageRequest is a receiver's request for its next messages. The sender deletes those that were received.
type messageRequest struct {
	After    int64  `query:"after"`
	Received string `query:"taken" max:"4000"` // ids, with commas between
}

// messageResponse is the response to a messageRequest.
type messageResponse struct {
	Messages []Message `json:"messages"`
}

// MessageRoute hands a service's messages to their receivers.
func MessageRoute(db *pg.DB, receivers ...string) rest.Route {
	return rest.Read[messageRequest, messageResponse]{
		Path:  messagePath,
		Guard: guard.Peers(receivers...),
		Do: func(ctx context.Context, req messageRequest) (out messageResponse, err error) {
			receiver := principal.FromContext(ctx).Peer
			if req.Received != "" {
				if err := db.InTx(ctx, func(tx *pg.Tx) error {
					tx.Unrecorded("the receiver has it")
					_, err := tx.Exec(ctx, "DELETE FROM message WHERE receiver = $1 AND id = ANY ($2::uuid[])", receiver, strings.Split(req.Received, ","))
					return err
				}); err != nil {
					return out, fmt.Errorf("delete received messages: %w", err)
				}
			}
			rows, err := db.Query(
				ctx,
				"SELECT n, id::text, kind, content, sealed, coalesce(request_id, ''), at, coalesce(traceparent, '') FROM message "+
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
			columns := []any{&m.N, &m.ID, &m.Kind, &m.Content, &m.Sealed, &m.RequestID, &m.At, &m.Traceparent}
			_, err = pgx.ForEachRow(rows, columns, func() error {
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

// MessageHandler acts on a message, in the unit of work that marks it as received.
type MessageHandler func(context.Context, *pg.Tx, Message) error

// Inbox receives the messages of one service.
type Inbox struct {
	Source   string
	Box      *seal.Box                 // of MessageKey
	Handlers map[string]MessageHandler // by kind of message

	Interval time.Duration // how often it asks without a wake-up; 0: wake.Interval
}

// MessageTopic is the topic with which a service wakes the receiver of messages.
func MessageTopic(receiver string) string { return "messages to " + receiver }

// Run handles messages, and asks for more whenever it is woken, until ctx ends. A message whose handler fails stays with
// its sender and does not block others.
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

// drain handles all waiting messages.
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
				failed = errors.Join(failed, &RequestError{m.RequestID, fmt.Errorf("handle message %s of %s (%s): %w", m.ID, i.Source, m.Kind, err)})
				continue
			}
			received = append(received, m.ID)
		}
	}
}

// handle calls the message's handler in a unit of work, unless the message was handled before.
func (i *Inbox) handle(ctx context.Context, db *pg.DB, m Message) (err error) {
	handler := i.Handlers[m.Kind]
	if handler == nil {
		return errors.New("there is no handler for this kind: is the sender a newer version?")
	}
	if len(m.Sealed) > 0 {
		if m.Secret, err = i.Box.Open(m.location(), m.Sealed); err != nil {
			return err
		}
	}
	ctx = principal.NewContext(ctx, &principal.Call{RequestID: m.RequestID})
	ctx, endSpan := tracing.Process(ctx, "messages of "+i.Source, m.Traceparent)
	defer func() { endSpan(err) }()
	return db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the sender has recorded the cause")
		done, err := tx.Exec(ctx, "INSERT INTO message_taken (id) VALUES ($1) ON CONFLICT DO NOTHING", m.ID)
		if err != nil || done.RowsAffected() == 0 {
			return wrap("mark a message as received", err)
		}
		return handler(ctx, tx, m)
	})
}
