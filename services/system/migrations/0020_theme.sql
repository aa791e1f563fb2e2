-- +goose Up
-- One row: how panels look.
CREATE TABLE theme (
	id                 bigint PRIMARY KEY CHECK (id = 1),
	version            bigint NOT NULL DEFAULT 1,
	custom_admin_html  text,
	custom_client_html text,
	custom_css         text,
	link_color         text,
	logo               text,
	main_bg            text,
	nav_bg             text,
	panel_alt_bg       text,
	panel_bg           text,
	side_nav_bg        text,
	text_color         text
);

INSERT INTO theme (id) VALUES (1);
