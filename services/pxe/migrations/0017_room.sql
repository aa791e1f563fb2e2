-- +goose Up
ALTER TABLE install ADD leaving boolean NOT NULL DEFAULT false; -- room was taken from it, and its agent may have given its machine the boot script by then
ALTER TABLE site_agent ADD settled bigint NOT NULL DEFAULT 0; -- the last revision that it was told of before it was listened to last
