-- +goose Up
ALTER TABLE site_agent ADD machines_ipv6_url text NOT NULL DEFAULT ''; -- where machines reach it that have no IPv4
