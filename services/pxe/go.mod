module github.com/ironplane/ironplane/services/pxe

go 1.26.0
