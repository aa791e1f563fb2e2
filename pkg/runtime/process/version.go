package process

import (
	"cmp"
	"fmt"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// version is the output of git describe. The linker sets it.
var version string

// build identifies the source and the compiler of a program.
type build struct{ version, commit, compiler string }

func ownBuild() build {
	b := build{version: cmp.Or(version, "unknown"), commit: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.compiler = info.GoVersion
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			b.commit += " with changes"
		}
	}
	return b
}

// Version returns the version of this program, as git describes its source.
func Version() string { return ownBuild().version }

func (b build) String() string {
	return fmt.Sprintf("%s, commit %s, built by %s", b.version, b.commit, b.compiler)
}

func buildInfo() prometheus.Collector {
	b := ownBuild()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ironplane_build_info", Help: "Constant 1, with the running build as labels.",
		ConstLabels: prometheus.Labels{"version": b.version, "commit": b.commit, "goversion": b.compiler},
	}, func() float64 { return 1 })
}
