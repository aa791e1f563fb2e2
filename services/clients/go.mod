module github.com/ironplane/ironplane/services/clients

go 1.26.0
