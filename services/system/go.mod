module github.com/ironplane/ironplane/services/system

go 1.26.0
