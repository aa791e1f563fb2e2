// License creates licenses, and the keys that sign them.
package main

import "github.com/ironplane/ironplane/deploy/internal/license"

func main() { license.Program().Main() }
