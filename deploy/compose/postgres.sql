-- Once, when the cluster is made: the database and who administers it. Nobody logs in as the superuser.
\set password `cat /secrets/password`
CREATE ROLE ironplane LOGIN CREATEROLE PASSWORD :'password';
CREATE DATABASE ironplane OWNER ironplane;
ALTER ROLE postgres PASSWORD NULL;
