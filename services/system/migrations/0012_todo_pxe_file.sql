-- +goose Up
INSERT INTO todo (slug, done_by) VALUES ('pxe.file.add', 'pxe.file.created');
