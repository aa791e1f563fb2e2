module github.com/ironplane/ironplane/pkg/client

go 1.26.0
