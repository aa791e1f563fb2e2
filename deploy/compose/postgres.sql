-- Runs once, when the cluster is created. It creates the database and its administrator, and disables the superuser's login.
\set password `cat /secrets/password`
CREATE ROLE ironplane LOGIN CREATEROLE PASSWORD :'password';
CREATE DATABASE ironplane OWNER ironplane;
ALTER ROLE postgres PASSWORD NULL;
