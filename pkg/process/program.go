package process

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
)

// Program is what a main is: commands, and a configuration for all of them that comes from the environment.
type Program struct {
	Name     string
	Config   any       // a pointer to a struct, as configure reads it
	Commands []Command // the first is the one that is meant where none is given
}

// Command is one thing that a program does.
type Command struct {
	Name, Summary string
	Run           func(context.Context) error // once the configuration is read
}

// Main does what the arguments say, and exits.
func (p Program) Main() {
	Main(func(ctx context.Context) error { return p.run(ctx, os.Args[1:], os.Environ(), os.Stdout) })
}

func (p Program) run(ctx context.Context, arguments, environment []string, screen io.Writer) error {
	name := p.Commands[0].Name
	if len(arguments) > 0 {
		name = arguments[0]
	}
	switch name {
	case "help", "-h", "--help":
		_, err := io.WriteString(screen, p.usage())
		return err
	case "version", "--version":
		_, err := fmt.Fprintf(screen, "%s %s\n", p.Name, ownBuild())
		return err
	}
	if len(arguments) > 1 {
		return fmt.Errorf("what is %q? All settings are in the environment: see %s help", arguments[1], p.Name)
	}
	for _, c := range p.Commands {
		if c.Name != name {
			continue
		}
		if err := configure(p.Config, environment, name); err != nil {
			return err
		}
		return c.Run(ctx)
	}
	return fmt.Errorf("there is no command %q: see %s help", name, p.Name)
}

func (p Program) usage() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s [command]\n\nCommands:\n", p.Name)
	for i, c := range p.Commands {
		fmt.Fprintf(&b, "  %-10s %s", c.Name, c.Summary)
		if i == 0 {
			b.WriteString(" (the default)")
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "  %-10s say which one this is\n  %-10s print this\n\nEnvironment:\n%s", "version", "help", describe(p.Config))
	return b.String()
}

// Log is a program's log, on stderr.
func Log(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}
