CREATE OR REPLACE VIEW webhook_delivery_view AS
	SELECT d.id, webhook_id, e.uuid AS event, e.type, cause, status, attempts, nullif(next_at, 'infinity') AS next_at, created_at, tried_at, duration, answer_status, answer, error, e.payload
	FROM webhook_delivery d JOIN webhook_event e ON e.id = event_id;
