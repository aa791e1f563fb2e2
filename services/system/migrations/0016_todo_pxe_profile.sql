-- +goose Up
INSERT INTO todo (slug, done_by) VALUES ('pxe.profile.add', 'pxe.profile.created');
