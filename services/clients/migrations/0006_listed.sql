-- +goose Up
-- What client_seen has for who holds users.clients, by itself: of a union the planner reads all rows before it sorts them.
CREATE VIEW client_listed AS SELECT *, 0::bigint AS viewer, true AS listed FROM client_view;
