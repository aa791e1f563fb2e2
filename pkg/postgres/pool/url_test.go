package pool_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/postgres/provision"
)

// No error shows an invalid URL, or a part of its password.
func TestURLIsNotShown(t *testing.T) {
	t.Parallel()
	for _, password := range []string{
		"alpha/bravo", "12/bravo", "alpha%bravo", "alpha@bravo", "alpha#bravo", "alpha?bravo", "12?bravo", "alpha:bravo", "alpha bravo",
		"alpha[bravo", "alpha@bra/vo", "alpha/bra@vo", "alpha%zz@bravo",
	} {
		for _, form := range []string{"postgres://net:%s@127.0.0.1:1/db", "postgresql//net:%s@127.0.0.1:1/db", "host=127.0.0.1 port=1 " +
			"user=net password=%s"} {
			url := fmt.Sprintf(form, password)
			_, opened := pool.Open(t.Context(), url, 1, pool.Options{})
			for _, err := range []error{opened, provision.Database(t.Context(), url, "", nil)} {
				if err == nil || strings.Contains(err.Error(), "alpha") || strings.Contains(err.Error(), "bra") {
					t.Errorf("%s: got %v, want an error without the password", url, err)
				}
			}
		}
	}
}
