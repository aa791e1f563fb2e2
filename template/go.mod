module github.com/ironplane/ironplane/template

go 1.26.0

replace (
	github.com/ironplane/ironplane/backing => ../backing
	github.com/ironplane/ironplane/pkg => ../pkg
	github.com/ironplane/ironplane/process => ../process
	github.com/ironplane/ironplane/testkit => ../testkit
)

require github.com/ironplane/ironplane/pkg v0.0.0
